// Package provision makes the things outside the database that Tidewait needs:
// search attributes and retention in Temporal, buckets and the log stream in
// NATS. Everything is idempotent.
package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	namespacepb "go.temporal.io/api/namespace/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/nats-io/nats.go/jetstream"

	"tidewait/config"
	"tidewait/workflows"
)

// SearchAttributes registers the product's search attributes in a namespace and
// returns the names it added.
func SearchAttributes(ctx context.Context, c client.Client, namespace string) ([]string, error) {
	missing, err := MissingSearchAttributes(ctx, c, namespace)
	if err != nil || len(missing) == 0 {
		return nil, err
	}
	types := map[string]enumspb.IndexedValueType{}
	for _, key := range workflows.SearchAttributes() {
		if slices.Contains(missing, key.GetName()) {
			types[key.GetName()] = key.GetValueType()
		}
	}
	_, err = c.OperatorService().AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{
		Namespace: namespace, SearchAttributes: types,
	})
	var exists *serviceerror.AlreadyExists
	if err != nil && !errors.As(err, &exists) {
		return nil, fmt.Errorf("register search attributes %s in namespace %s: %w", strings.Join(missing, ", "), namespace, err)
	}
	return missing, nil
}

// MissingSearchAttributes lists the product's search attributes that are not
// registered, or have another type.
func MissingSearchAttributes(ctx context.Context, c client.Client, namespace string) ([]string, error) {
	res, err := c.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: namespace})
	if err != nil {
		return nil, fmt.Errorf("list search attributes of namespace %s: %w", namespace, err)
	}
	var missing []string
	for _, key := range workflows.SearchAttributes() {
		if res.GetCustomAttributes()[key.GetName()] != key.GetValueType() {
			missing = append(missing, key.GetName())
		}
	}
	return missing, nil
}

// Retention makes a namespace keep closed workflows for at least keep. It
// returns what the namespace kept before.
func Retention(ctx context.Context, c client.Client, namespace string, keep time.Duration) (before time.Duration, err error) {
	desc, err := c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: namespace})
	if err != nil {
		return 0, fmt.Errorf("describe namespace %s: %w", namespace, err)
	}
	before = desc.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration()
	if before >= keep {
		return before, nil
	}
	_, err = c.WorkflowService().UpdateNamespace(ctx, &workflowservice.UpdateNamespaceRequest{
		Namespace: namespace,
		Config:    &namespacepb.NamespaceConfig{WorkflowExecutionRetentionTtl: durationpb.New(keep)},
	})
	if err != nil {
		return before, fmt.Errorf("set the retention of namespace %s to %s: %w", namespace, keep, err)
	}
	return before, nil
}

// Namespace makes a namespace when it is not there, and reports whether it did.
func Namespace(ctx context.Context, c client.Client, namespace string, keep time.Duration) (made bool, err error) {
	_, err = c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: namespace})
	var missing *serviceerror.NamespaceNotFound
	if err == nil || !errors.As(err, &missing) {
		return false, err
	}
	_, err = c.WorkflowService().RegisterNamespace(ctx, &workflowservice.RegisterNamespaceRequest{
		Namespace: namespace, Description: "Tidewait", WorkflowExecutionRetentionPeriod: durationpb.New(keep),
	})
	if err != nil {
		return false, fmt.Errorf("make namespace %s: %w", namespace, err)
	}
	return true, awaitNamespace(ctx, c, namespace)
}

// awaitNamespace returns when every part of the server knows a new namespace.
func awaitNamespace(ctx context.Context, c client.Client, namespace string) error {
	return until(ctx, func() error {
		_, err := c.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: namespace})
		return err
	})
}

// Report is what All found and made.
type Report struct {
	Namespace        bool          `json:"namespaceMade"`    // it was not there
	SearchAttributes []string      `json:"searchAttributes"` // those it registered
	Retention        time.Duration `json:"retention"`        // what the namespace keeps now, nanoseconds
	EncryptionKey    string        `json:"encryptionKey"`    // the id of that which encrypts; empty: none
}

// All makes everything that Temporal and NATS must have before a worker starts, with
// the buckets of nodes that may not make their own, and returns when it is known
// everywhere.
func All(ctx context.Context, c client.Client, namespace string, js jetstream.JetStream, s config.Settings, nodes ...string) (Report, error) {
	var r Report
	var err error
	if r.Namespace, err = Namespace(ctx, c, namespace, s.Temporal.Retention); err != nil {
		return r, err
	}
	if r.SearchAttributes, err = SearchAttributes(ctx, c, namespace); err != nil {
		return r, err
	}
	before, err := Retention(ctx, c, namespace, s.Temporal.Retention)
	if err != nil {
		return r, err
	}
	r.Retention = max(before, s.Temporal.Retention)
	if err := Streams(ctx, js, s.Fleet); err != nil {
		return r, err
	}
	for _, node := range nodes {
		if err := NodeBucket(ctx, js, node, s.Fleet); err != nil {
			return r, err
		}
	}
	if err := awaitSearchAttributes(ctx, c, namespace); err != nil {
		return r, err
	}
	codec, err := config.PayloadCodec(s.Temporal)
	if err != nil {
		return r, err
	}
	r.EncryptionKey = codec.EncryptsWith()
	return r, SetEncryptionKey(ctx, c, namespace, codec)
}

// awaitSearchAttributes returns when the namespace lists every attribute.
func awaitSearchAttributes(ctx context.Context, c client.Client, namespace string) error {
	return until(ctx, func() error {
		missing, err := MissingSearchAttributes(ctx, c, namespace)
		if err == nil && len(missing) > 0 {
			err = fmt.Errorf("namespace %s does not list %s", namespace, strings.Join(missing, ", "))
		}
		return err
	})
}

// until tries f until it succeeds or ctx ends. What was just made is not known
// to every part of a server at once.
func until(ctx context.Context, f func() error) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}
