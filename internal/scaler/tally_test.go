package scaler_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/scaler"
)

func TestCountTellsWhatRunsOfWhatIsWanted(t *testing.T) {
	e := newEngine(shop(provider("web", linkTo("api")), component("api", spread(5)), component("log", daemon(2, in("a", 1)))))
	count := func() []scaler.Tally { return scaler.Count("shop-front", e.desired, e.state().Hosts) }
	require.Equal(t, []scaler.Tally{
		{Name: "shop_front-web", Desired: 1}, {Name: "shop_front-api", Desired: 5}, {Name: "shop_front-log"},
	}, count(), "no host suits the daemon")

	e.join("h1", zone("a"))
	e.join("h2", zone("b"))
	require.Equal(t, scaler.Tally{Name: "shop_front-log", Desired: 2}, count()[2], "one does")
	e.settle(t)
	require.Equal(t, []scaler.Tally{
		{Name: "shop_front-web", Running: 1, Desired: 1}, {Name: "shop_front-api", Running: 5, Desired: 5}, {Name: "shop_front-log", Running: 2, Desired: 2},
	}, count())

	before := e.desired
	e.desired = scaler.List(shop(component("api", spread(8))))
	require.Equal(t, []scaler.Tally{{Name: "shop_front-api", Running: 5, Desired: 8}}, count(), "the same scaler, more of it")
	e.desired = scaler.List(shop(component("api", spread(3))))
	require.Equal(t, []scaler.Tally{{Name: "shop_front-api", Running: 3, Desired: 3}}, count(), "never more than is wanted")
	e.desired = before
	require.Equal(t, 0, scaler.Count("other", e.desired, e.state().Hosts)[1].Running, "it is of another application")
}
