package scaler

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"tidewait/internal/oam"
)

// Types that secrets' backends and hosts know references and policies by.
const (
	secretType       = "secret.wasmcloud.dev/v1alpha1"
	secretPolicyType = "properties.secret.wasmcloud.dev/v1alpha1"
)

// Keys of the configuration that refers to a secret.
const (
	keySecretPolicy = "policy"  // JSON, what is meant by it and not its bytes
	keyBackend      = "backend" // of the reference, and of the manifest's policy
)

// secret is the reference to a secret as hosts read it. Of a secret whose policy
// the manifest lacks, only the name is known: it is somebody else's to make.
func (a application) secret(s oam.Secret) Config {
	c := Config{Name: oam.SecretName(a.name, s.Name), Secret: true}
	i := slices.IndexFunc(a.manifest.Spec.Policies, func(p oam.Policy) bool { return p.Name == s.Properties.Policy })
	if i < 0 {
		return c
	}
	c.Managed = true
	c.Values = map[string]string{
		"name":          s.Name,
		"type":          secretType,
		keyBackend:      a.manifest.Spec.Policies[i].Properties[keyBackend],
		"key":           s.Properties.Key,
		keySecretPolicy: secretPolicy(a.manifest.Spec.Policies[i].Properties),
	}
	if s.Properties.Field != "" {
		c.Values["field"] = s.Properties.Field
	}
	if s.Properties.Version != "" {
		c.Values["version"] = s.Properties.Version
	}
	return c
}

// secretPolicy is what a backend is told of a policy: all but the backend's name.
func secretPolicy(properties map[string]string) string {
	rest := maps.Clone(properties)
	delete(rest, keyBackend)
	if rest == nil {
		rest = map[string]string{}
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	// Strings always encode.
	_ = enc.Encode(struct {
		Type       string            `json:"type"`
		Properties map[string]string `json:"properties"`
	}{secretPolicyType, rest})
	return string(bytes.TrimSuffix(text.Bytes(), []byte("\n")))
}
