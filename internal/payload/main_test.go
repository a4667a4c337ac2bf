package payload_test

import (
	"os"
	"testing"

	"tidewait/internal/devstack"
)

func TestMain(m *testing.M) {
	devstack.MaybeRunNATS()
	os.Exit(m.Run())
}
