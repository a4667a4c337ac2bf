package store

import (
	"context"
	"errors"
	"fmt"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
)

// ShowApplication reads who did what to an application, and its wait. An
// application of which nothing is known is ErrNotFound; of one that was deleted
// the acts are known for as long as they are kept.
func (s *Store) ShowApplication(ctx context.Context, key ledger.AppKey) (api.AppDetail, error) {
	app := api.AppDetail{Account: key.Account, Lattice: key.Lattice, Name: key.Name}
	if err := checkKey(key); err != nil {
		return app, fmt.Errorf("show application: %w", err)
	}
	err := s.readOne(ctx, key, `
SELECT deployed_version, deployed_by, deployed_at FROM applications
WHERE account = $1 AND lattice = $2 AND name = $3`, nil, &app.Deployed, &app.DeployedBy, &app.DeployedAt)
	known := err == nil
	if err != nil && !errors.Is(err, ErrNotFound) {
		return app, err
	}
	app.DeployedAt = utc(app.DeployedAt)
	if app.Acts, err = s.applicationActs(ctx, key); err != nil {
		return app, fmt.Errorf("show application %s: %w", key, err)
	}
	if !known && len(app.Acts) == 0 {
		return app, fmt.Errorf("application %s: %w", key, ErrNotFound)
	}
	waits, err := s.applicationWaits(ctx, api.WaitRequest{Account: key.Account, Lattice: key.Lattice, Application: key.Name})
	if err == nil {
		app.Now, err = s.Now(ctx)
	}
	if err != nil {
		return app, fmt.Errorf("show application %s: %w", key, err)
	}
	if len(waits) > 0 {
		app.Wait = &waits[0]
	}
	return app, nil
}
