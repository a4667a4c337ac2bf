package scaler_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/oam"
	"tidewait/internal/scaler"
)

// fleet is a lattice of 100 hosts that run 500 applications of four components
// each, and one application that is to run there.
func fleet(b *testing.B, instances int) *engine {
	m := shop(provider("web", linkTo("c0")))
	for i := range 3 {
		c := component(fmt.Sprintf("c%d", i), spread(instances))
		c.Properties.Config = []oam.Config{settings("x")}
		m.Spec.Components = append(m.Spec.Components, c)
	}
	e := newEngine(m)
	for i := range 100 {
		h := e.join(fmt.Sprintf("n%d", i), zone("a"))
		for k := range 20 {
			h.Components = append(h.Components, foreign(fmt.Sprintf("other%d-c%d", i, k), map[string]string{
				"wasmcloud.dev/managed-by": "wadm", "wasmcloud.dev/appspec": "other",
			}))
		}
	}
	require.NotEmpty(b, e.hosts)
	return e
}

func BenchmarkPlan(b *testing.B) {
	for _, instances := range []int{4, 200} {
		e := fleet(b, instances)
		b.Run(fmt.Sprintf("first/%d", instances), func(b *testing.B) {
			in := scaler.Input{App: "shop-front", Desired: e.desired, State: e.state(), Now: noon}
			for b.Loop() {
				scaler.Plan(in)
			}
		})
		e.settle(b)
		b.Run(fmt.Sprintf("settled/%d", instances), func(b *testing.B) {
			in := scaler.Input{App: "shop-front", Desired: e.desired, Owned: e.owned, State: e.state(), Now: noon}
			for b.Loop() {
				scaler.Plan(in)
			}
		})
	}
}

func BenchmarkList(b *testing.B) {
	doc, err := oam.Parse([]byte(everything), oam.YAML)
	require.NoError(b, err)
	for b.Loop() {
		scaler.List(doc.Manifest)
	}
}
