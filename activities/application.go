package activities

import (
	"context"

	"tidewait/internal/ledger"
)

// LoadApplication reads what is deployed of an application. Of one that nobody
// knows nothing is.
func (e *Engine) LoadApplication(ctx context.Context, key ledger.AppKey) (ledger.Application, error) {
	app, err := e.Store.Application(ctx, key)
	return app, asTemporal(err)
}
