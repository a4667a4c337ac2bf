package segment

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tidewait/internal/vm"
)

func TestPlan(t *testing.T) {
	hosts, err := Plan([]Agent{{Name: "author"}, {Name: "critic", Replicas: 2}, {Name: "db", Replicas: 1}})
	require.NoError(t, err)
	require.Equal(t, []Host{
		{Agent: "author", Name: "author", Address: netip.MustParseAddr("10.84.87.1"), MAC: MAC{2, 0, 10, 84, 87, 1}},
		{Agent: "critic", Replica: 1, Name: "critic-1", Address: netip.MustParseAddr("10.84.87.2"), MAC: MAC{2, 0, 10, 84, 87, 2}},
		{Agent: "critic", Replica: 2, Name: "critic-2", Address: netip.MustParseAddr("10.84.87.3"), MAC: MAC{2, 0, 10, 84, 87, 3}},
		{Agent: "db", Name: "db", Address: netip.MustParseAddr("10.84.87.4"), MAC: MAC{2, 0, 10, 84, 87, 4}},
	}, hosts)
	require.Equal(t, "02:00:0a:54:57:02", hosts[1].MAC.String())
}

func TestPlanRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		agents []Agent
		want   string
	}{
		{"a name twice", []Agent{{Name: "a"}, {Name: "a"}}, `agent "a": the host name "a" is already that of agent "a"`},
		{"the name of a replica", []Agent{{Name: "a", Replicas: 2}, {Name: "a-2"}}, `agent "a-2": the host name "a-2" is already that of agent "a"`},
		{"the loopback's name", []Agent{{Name: "localhost"}}, `agent "localhost": the host name "localhost" is already that of the loopback interface`},
		{"no name", []Agent{{}}, `agent "": "" cannot be a host name; use at most 63 of a-z, 0-9 and -, with a letter or digit at both ends`},
		{"a line of its own", []Agent{{Name: "a\n10.0.0.1 b"}}, `agent "a\n10.0.0.1 b": "a\n10.0.0.1 b" cannot be a host name; use at most 63 of a-z, 0-9 and -, with a letter or digit at both ends`},
		{"a replica's name too long", []Agent{{Name: strings.Repeat("a", 62), Replicas: 2}}, `agent "` + strings.Repeat("a", 62) + `": "` + strings.Repeat("a", 62) + `-1" cannot be a host name; use at most 63 of a-z, 0-9 and -, with a letter or digit at both ends`},
		{"too many", []Agent{{Name: "a"}, {Name: "b", Replicas: 32}}, `agent "b": 32 replicas are not possible; 1 to 32 machines fit on a segment`},
		{"less than none", []Agent{{Name: "a", Replicas: -1}}, `agent "a": -1 replicas are not possible; 1 to 32 machines fit on a segment`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Plan(c.agents)
			require.EqualError(t, err, c.want)
		})
	}
}

// TestPlanNamesNobodyTwice holds for every plan that is not refused.
func TestPlanNamesNobodyTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		agents := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Agent {
			return Agent{Name: rapid.StringMatching(`[ab](-[12])?`).Draw(t, "name"), Replicas: rapid.IntRange(0, 20).Draw(t, "replicas")}
		}), 1, 6).Draw(t, "agents")
		hosts, err := Plan(agents)
		if err != nil {
			return
		}
		seen := map[any]bool{}
		for _, h := range hosts {
			for _, key := range []any{h.Name, h.Address, h.MAC} {
				require.False(t, seen[key], "%v is there twice in %v", key, hosts)
				seen[key] = true
			}
			require.True(t, network.Contains(h.Address))
		}
	})
}

func TestNIC(t *testing.T) {
	s := open(t, Agent{Name: "author"}, Agent{Name: "critic", Replicas: 2})
	nic := s.NIC(1)
	require.NotNil(t, nic.Cable)
	require.Equal(t, vm.Network{
		Name: "critic-1", MAC: "02:00:0a:54:57:02", MTU: 9000, Address: netip.MustParsePrefix("10.84.87.2/24"),
		Hosts: []vm.HostName{
			{Address: netip.MustParseAddr("10.84.87.1"), Names: []string{"author"}},
			{Address: netip.MustParseAddr("10.84.87.2"), Names: []string{"critic-1", "critic"}},
			{Address: netip.MustParseAddr("10.84.87.3"), Names: []string{"critic-2", "critic"}},
		},
	}, nic.Network)
}
