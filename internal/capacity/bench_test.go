package capacity_test

import (
	"fmt"
	"testing"
	"time"

	"tidewait/internal/capacity"
)

// fleet1000 is a mixed fleet; used is the share of each node, in percent, that
// is reserved.
func fleet1000(used int64) []capacity.Node {
	fleet := make([]capacity.Node, 1000)
	for i := range fleet {
		scale := int64(1 + i%4)
		all := capacity.Resources{CPUMilli: 16_000 * scale, MemoryMiB: 64 * gib * scale, DiskMiB: 500 * gib * scale, Slots: 32 * scale}
		fleet[i] = node(fmt.Sprintf("node-%04d", i), func(n *capacity.Node) {
			n.Allocatable = all
			n.Free = capacity.Resources{
				CPUMilli:  all.CPUMilli * (100 - used) / 100,
				MemoryMiB: all.MemoryMiB*(100-used)/100 - int64(i%7)*min(used, 1),
				DiskMiB:   all.DiskMiB * (100 - used) / 100,
				Slots:     all.Slots * (100 - used) / 100,
			}
			n.StartLimit = 1000
			n.Runs = runs16(all.Sub(n.Free), i)
		})
	}
	return fleet
}

// runs16 splits what is used into sixteen runs that end at different moments.
func runs16(used capacity.Resources, node int) []capacity.Run {
	if used == (capacity.Resources{}) {
		return nil
	}
	runs := make([]capacity.Run, 16)
	for i := range runs {
		runs[i] = capacity.Run{
			Holds:  capacity.Resources{CPUMilli: used.CPUMilli / 16, MemoryMiB: used.MemoryMiB / 16, DiskMiB: used.DiskMiB / 16, Slots: used.Slots / 16},
			EndsIn: time.Duration((node*7+i*11)%60) * time.Minute,
		}
	}
	return runs
}

// waiting10000 asks for the given number of different shapes in turn.
func waiting10000(shapes int) []capacity.Waiting {
	queue := make([]capacity.Waiting, 10_000)
	for i := range queue {
		shape := int64(i % shapes)
		queue[i] = capacity.Waiting{ID: int64(i), Longest: time.Hour, Demand: demand(asks(1000+shape, 2*gib+shape, gib, 1))}
	}
	return queue
}

func BenchmarkAdmit(b *testing.B) {
	for name, fleet := range map[string][]capacity.Node{"placed": fleet1000(50), "refused": fleet1000(100)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = capacity.Admit(fleet, demand())
			}
		})
	}
}

func BenchmarkPass(b *testing.B) {
	for _, bm := range []struct {
		name   string
		fleet  []capacity.Node
		shapes int
	}{
		{"all placed/10 shapes", fleet1000(0), 10},
		{"all placed/10000 shapes", fleet1000(0), 10_000},
		{"all refused/10 shapes", fleet1000(100), 10},
		{"all refused/10000 shapes", fleet1000(100), 10_000},
		{"half placed/10000 shapes", fleet1000(88), 10_000},
	} {
		queue := waiting10000(bm.shapes)
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				capacity.Pass(bm.fleet, queue)
			}
		})
	}
}

func BenchmarkCapable(b *testing.B) {
	fleet := fleet1000(100)
	for name, d := range map[string]capacity.Demand{"yes": demand(), "no": demand(asks(1<<30, gib, gib, 1))} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				capacity.Capable(fleet, d)
			}
		})
	}
}
