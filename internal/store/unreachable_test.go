package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"tidewait/internal/store"
)

func TestUnreachable(t *testing.T) {
	for _, err := range []error{
		io.ErrUnexpectedEOF, fmt.Errorf("show: %w", io.EOF), &pgconn.PgError{Code: "57P01"}, &pgconn.PgError{Code: "57P03"},
		&pgconn.PgError{Code: "08006"}, &pgconn.ConnectError{},
	} {
		require.True(t, store.Unreachable(err), err)
	}
	for _, err := range []error{
		store.ErrNotFound, store.ErrConflict, context.DeadlineExceeded, errors.New("other"), &pgconn.PgError{Code: "23514"},
	} {
		require.False(t, store.Unreachable(err), err)
	}
}
