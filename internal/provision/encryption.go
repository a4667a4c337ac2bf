package provision

import (
	"context"
	"fmt"

	namespacepb "go.temporal.io/api/namespace/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"tidewait/internal/payload"
)

// encryptionKey is where the namespace's data says with which key its payloads are
// encrypted. The key's id is there, which is in every payload too.
const encryptionKey = "tidewait-encryption-key"

// EncryptionKey is the id of the key with which a namespace says that its payloads
// are encrypted; empty: with none.
func EncryptionKey(ctx context.Context, c client.Client, namespace string) (string, error) {
	desc, err := c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: namespace})
	if err != nil {
		return "", fmt.Errorf("describe namespace %s: %w", namespace, err)
	}
	return desc.GetNamespaceInfo().GetData()[encryptionKey], nil
}

// SetEncryptionKey has a namespace say that its payloads are encrypted as this codec
// does, so that processes which cannot read or would not encrypt them refuse to start.
// A codec without the key that it says now changes nothing, and is an error.
func SetEncryptionKey(ctx context.Context, c client.Client, namespace string, codec *payload.Codec) error {
	before, err := EncryptionKey(ctx, c, namespace)
	if err != nil || before == codec.EncryptsWith() {
		return err
	}
	if err := mayRead(namespace, before, codec); err != nil {
		return err
	}
	_, err = c.WorkflowService().UpdateNamespace(ctx, &workflowservice.UpdateNamespaceRequest{
		Namespace:  namespace,
		UpdateInfo: &namespacepb.UpdateNamespaceInfo{Data: map[string]string{encryptionKey: codec.EncryptsWith()}},
	})
	if err != nil {
		return fmt.Errorf("record the encryption key in namespace %s: %w", namespace, err)
	}
	return nil
}

// Allows refuses a codec that lacks the key with which the namespace says it is
// encrypted, or would write there in plain text. An empty key is that of a namespace
// which says nothing.
func Allows(namespace, key string, codec *payload.Codec) error {
	if err := mayRead(namespace, key, codec); err != nil {
		return err
	}
	if key != "" && codec.EncryptsWith() == "" {
		return fmt.Errorf("namespace %s is encrypted, with key %q, and temporal.encryption is none here: "+
			"set it to payloads or all; to turn encryption off, run `tidewait setup` with none first", namespace, key)
	}
	return nil
}

func mayRead(namespace, key string, codec *payload.Codec) error {
	if key == "" || codec.Keys().Has(key) {
		return nil
	}
	return fmt.Errorf("namespace %s is encrypted with key %q, and this process has %s: add that key to temporal.encryption_keys", namespace, key, codec.Keys())
}
