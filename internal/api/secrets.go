package api

import (
	"strings"
	"time"
)

// The subjects of secrets begin with tokens of their own, so that NATS can allow
// them to those alone who need them: a node asks for its own, engines answer and
// ask gateways, a gateway answers for itself. The reply to both is a Sealed of package seal.
const (
	subjectRunSecrets  = "tidewait.secrets.run."
	subjectSealSecrets = "tidewait.secrets.seal."

	// SubjectRunSecrets is what engines answer: SecretsRequest of any node.
	SubjectRunSecrets = subjectRunSecrets + "*"
)

// SubjectNodeSecrets returns the subject on which a node asks for the secrets of
// a run that it has: SecretsRequest.
func SubjectNodeSecrets(node string) string { return subjectRunSecrets + node }

// NodeOfSecrets returns the node that asks on a subject.
func NodeOfSecrets(subject string) string { return strings.TrimPrefix(subject, subjectRunSecrets) }

// SubjectSealSecrets returns the subject on which a gateway seals what it has:
// SealRequest.
func SubjectSealSecrets(gateway string) string { return subjectSealSecrets + gateway }

// How long a gateway may take for the secrets of a run, an engine with it, and a
// node waits for both.
const (
	SealTime      = 28 * time.Second
	SecretsTime   = 31 * time.Second
	SecretsWait   = 34 * time.Second
	SecretsRepeat = time.Second // between two tries
)

// CodeSecretUnavailable says that a gateway does not have a secret, or may not
// give it away. Asking again would not help. It is also the failure code of a
// phase that did not get its secrets.
const CodeSecretUnavailable = "secret_unavailable"

// SecretsRequest asks for the secrets of a run. "conflict" says that the node does
// not have this run now, or that it was given its secrets for another key.
type SecretsRequest struct {
	Run  string `json:"run"`
	Key  []byte `json:"key"`    // public, of this run
	Left int64  `json:"leftMs"` // milliseconds for which the node goes on asking
}

// SealRequest asks a gateway to seal secrets for one run.
type SealRequest struct {
	Mission string      `json:"mission"`
	Launch  int         `json:"launch"`
	Phase   string      `json:"phase"`
	Run     string      `json:"run"`
	Node    string      `json:"node"`
	Key     []byte      `json:"key"` // of the run
	Secrets []SecretRef `json:"secrets"`
}

// SecretRef is a variable and where the gateway finds its value.
type SecretRef struct {
	Name string `json:"name"`
	From string `json:"from"` // file:NAME, env:NAME or command:NAME
}
