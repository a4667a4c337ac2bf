package gateway

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// Full says that a bucket takes nothing more. What was to be stored is still
// where it was, and can be stored when there is room.
type Full struct {
	Bucket string
	cause  error
}

func (f *Full) Error() string {
	return fmt.Sprintf("bucket %s is full: %s", f.Bucket, f.cause)
}

func (f *Full) Unwrap() error { return f.cause }

// Codes of JetStream for want of room.
const (
	codeAccountResources jetstream.ErrorCode = 10002
	codeResources        jetstream.ErrorCode = 10023
	codeStorage          jetstream.ErrorCode = 10047
	codeStoreFailed      jetstream.ErrorCode = 10077
)

// fullOr returns a [*Full] when an error of storing into a bucket says that there
// is no room, and the error itself otherwise.
func fullOr(bucket string, err error) error {
	var failure *jetstream.APIError
	if !errors.As(err, &failure) {
		return err
	}
	switch failure.ErrorCode {
	case codeAccountResources, codeResources, codeStorage, codeStoreFailed:
		return &Full{Bucket: bucket, cause: err}
	}
	return err
}
