package segment

import (
	"fmt"
	"net/netip"
	"regexp"

	"tidewait/internal/vm"
)

// MaxHosts is how many machines a segment may have.
const MaxHosts = 32

// mtu is what a frame may hold beyond its Ethernet header, in bytes. Each frame
// costs the same whatever its size, so they are as large as is usual: three to
// ten times the throughput of 1500.
const mtu = 9000

// network holds the addresses of every segment. Segments cannot reach each
// other, so all of them have the same ones.
var network = netip.MustParsePrefix("10.84.87.0/24")

// Agent is the name of one or more machines that do the same.
type Agent struct {
	Name     string // a DNS label
	Replicas int    // machines; 0 means 1
}

// Host is one machine of a segment.
type Host struct {
	Agent   string
	Replica int    // from 1; 0 where the agent has one machine only
	Name    string // the host name, unique on the segment
	Address netip.Addr
	MAC     MAC
}

// Plan names the machines of agents and gives them addresses, in order. The
// only machine of an agent has the agent's name. Replicas are named NAME-1,
// NAME-2 and so on, and the agent's name resolves to the addresses of all of
// them.
func Plan(agents []Agent) ([]Host, error) {
	var hosts []Host
	taken := map[string]string{"localhost": "the loopback interface"}
	claim := func(name, agent string) error {
		if !label.MatchString(name) {
			return fmt.Errorf("agent %q: %q cannot be a host name; use at most 63 of a-z, 0-9 and -, with a letter or digit at both ends", agent, name)
		}
		if by, ok := taken[name]; ok {
			return fmt.Errorf("agent %q: the host name %q is already that of %s", agent, name, by)
		}
		taken[name] = fmt.Sprintf("agent %q", agent)
		return nil
	}
	for _, a := range agents {
		if err := claim(a.Name, a.Name); err != nil {
			return nil, err
		}
		if a.Replicas < 0 || len(hosts)+max(a.Replicas, 1) > MaxHosts {
			return nil, fmt.Errorf("agent %q: %d replicas are not possible; 1 to %d machines fit on a segment", a.Name, a.Replicas, MaxHosts)
		}
		if a.Replicas <= 1 {
			hosts = append(hosts, host(len(hosts), a.Name, 0))
			continue
		}
		for replica := 1; replica <= a.Replicas; replica++ {
			h := host(len(hosts), a.Name, replica)
			if err := claim(h.Name, a.Name); err != nil {
				return nil, err
			}
			hosts = append(hosts, h)
		}
	}
	return hosts, nil
}

var label = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func host(index int, agent string, replica int) Host {
	h := Host{Agent: agent, Replica: replica, Name: agent}
	if replica > 0 {
		h.Name = fmt.Sprintf("%s-%d", agent, replica)
	}
	ip := network.Addr().As4()
	ip[3] = byte(index + 1)
	h.Address = netip.AddrFrom4(ip)
	h.MAC = MAC{0x02, 0x00, ip[0], ip[1], ip[2], ip[3]} // locally administered
	return h
}

// names is what the machines of a segment call each other.
func names(hosts []Host) []vm.HostName {
	list := make([]vm.HostName, len(hosts))
	for i, h := range hosts {
		list[i] = vm.HostName{Address: h.Address, Names: []string{h.Name}}
		if h.Agent != h.Name {
			list[i].Names = append(list[i].Names, h.Agent)
		}
	}
	return list
}
