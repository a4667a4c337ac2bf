package store_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/ledger"
	"tidewait/internal/oam"
	"tidewait/internal/store"
	"tidewait/internal/wadm"
)

func appKey(name string) ledger.AppKey {
	return ledger.AppKey{Account: ledger.DefaultAccount, Lattice: "west", Name: name}
}

// appVersion is a version of an application that runs one component of that id.
func appVersion(version, id string) ledger.AppVersion {
	description := "the " + version
	return ledger.AppVersion{
		Version: version, Description: &description,
		Manifest: json.RawMessage(`{"kind": "Application", "version": "` + version + `"}`),
		Scalers:  []wadm.ScalerStatus{{ID: "scaler-" + id, Kind: "SpreadScaler", Name: id}},
		Facts:    oam.Facts{Components: map[string]oam.ComponentType{"web": oam.TypeComponent}, IDs: []string{id}},
	}
}

// sharing lets other applications refer to the version's component "web".
func sharing(v ledger.AppVersion) ledger.AppVersion {
	v.Facts.Shared = true
	return v
}

// using makes a version refer to the component "web" of other applications.
func using(v ledger.AppVersion, applications ...string) ledger.AppVersion {
	for _, a := range applications {
		v.Facts.References = append(v.Facts.References, oam.Reference{Application: a, Component: "web", Type: oam.TypeComponent})
	}
	return v
}

func put(t testing.TB, s *store.Store, key ledger.AppKey, versions ...ledger.AppVersion) int {
	t.Helper()
	total := 0
	for _, v := range versions {
		var err error
		total, err = s.PutApplication(context.Background(), key, v, uuid.New())
		require.NoError(t, err)
	}
	return total
}

func deploy(t testing.TB, s *store.Store, key ledger.AppKey, version *string) store.DeployedVersion {
	t.Helper()
	d, err := s.DeployApplication(context.Background(), key, version, "anna", store.DeployOptions{})
	require.NoError(t, err)
	return d
}

func TestApplicationSmoke(t *testing.T) {
	ctx := context.Background()
	s, _ := open(t, rules)
	key := appKey("shop")
	require.Equal(t, 1, put(t, s, key, appVersion("v1", "shop-web")))
	require.Equal(t, 2, put(t, s, key, appVersion("v2", "shop-web")))
	require.Equal(t, "v2", deploy(t, s, key, nil).Version)
	app, err := s.Application(ctx, key)
	require.NoError(t, err)
	require.True(t, app.IsDeployed)
	_, _, err = s.ListApplications(ctx, "default", "west", "", 0)
	require.NoError(t, err)
	_, err = s.ListWaits(ctx, api.WaitRequest{}, time.Minute)
	require.NoError(t, err)
	_, err = s.UndeployApplication(ctx, key, "", true)
	require.NoError(t, err)
	require.NoError(t, s.Renew(ctx, key))
	n, err := s.ClaimNews(ctx, 10, time.Minute)
	require.NoError(t, err)
	require.Len(t, n, 2)
	require.NoError(t, s.NewsFailed(ctx, n[0].ID, "x\x00", time.Minute))
	_, err = s.DeleteApplication(ctx, key, nil, "", true)
	require.NoError(t, err)
	_, err = s.ImportVersions(ctx, key, []ledger.AppVersion{appVersion("v1", "shop-web")}, nil, "", true)
	require.NoError(t, err)
}

