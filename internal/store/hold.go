package store

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"tidewait/internal/capacity"
)

// How long a hold binds other pools after the latest pass of its own, and how
// often a pass says that it still stands. A pool in which a phase waits has a
// pass every ten seconds or so.
const (
	holdLasts = 20 * time.Second
	holdEvery = 5 * time.Second
)

// poolHold is what a pool keeps for the head of its queue, as its row says.
type poolHold struct {
	capacity.Hold // In is not set
	pool          string
	name          string // of the head
	rank          time.Time
	startsBy      *time.Time
	lookedAt      time.Time
}

// holdsSQL reads this pool's hold, and those of others that still bind: their
// head still waits.
const holdsSQL = `
SELECT h.pool, h.phase_id, m.name || '/' || p.name, h.rank, h.node_id, h.cpu, h.memory, h.disk, h.slots,
       h.starts_by, extract(epoch FROM h.longest)::float8, h.looked_at
FROM capacity_holds h JOIN mission_phases p ON p.id = h.phase_id JOIN missions m ON m.id = p.mission_id
WHERE h.pool = $1 OR p.status = 'pending' AND h.looked_at > clock_timestamp() - $2 * interval '1 second'`

func (p *pass) scanHolds(rows pgx.Rows) error {
	defer rows.Close()
	for rows.Next() {
		var (
			h       poolHold
			longest float64
		)
		if err := rows.Scan(&h.pool, &h.Owner, &h.name, &h.rank, &h.NodeID,
			&h.Need.CPUMilli, &h.Need.MemoryMiB, &h.Need.DiskMiB, &h.Need.Slots, &h.startsBy, &longest, &h.lookedAt); err != nil {
			return err
		}
		h.Longest = seconds(longest)
		p.holds = append(p.holds, h)
	}
	return rows.Err()
}

// others returns the holds of other pools, for those that their heads are ahead
// of.
func (p *pass) others() []capacity.Other {
	var others []capacity.Other
	for _, h := range p.holds {
		if h.pool == p.pool {
			continue
		}
		o := capacity.Other{Hold: h.Hold}
		o.In = -1
		if h.startsBy != nil {
			o.In = max(h.startsBy.Sub(p.now), 0)
		}
		o.Ahead, _ = slices.BinarySearchFunc(p.queue, h, func(q queued, h poolHold) int {
			if c := q.rank.Compare(h.rank); c != 0 {
				return c
			}
			return int(q.id - h.Owner)
		})
		others = append(others, o)
	}
	return others
}

// holdSQL and unholdSQL write what this pool keeps.
const (
	holdSQL = `
INSERT INTO capacity_holds (pool, phase_id, rank, node_id, cpu, memory, disk, slots, starts_by, longest, looked_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10 * interval '1 second', $11)
ON CONFLICT (pool) DO UPDATE SET phase_id = EXCLUDED.phase_id, rank = EXCLUDED.rank, node_id = EXCLUDED.node_id,
    cpu = EXCLUDED.cpu, memory = EXCLUDED.memory, disk = EXCLUDED.disk, slots = EXCLUDED.slots,
    starts_by = EXCLUDED.starts_by, longest = EXCLUDED.longest, looked_at = EXCLUDED.looked_at`

	unholdSQL = `DELETE FROM capacity_holds WHERE pool = $1`
)

// queueHold writes this pool's hold where it changed, or says that it stands.
func (p *pass) queueHold(b *pgx.Batch) {
	i := slices.IndexFunc(p.holds, func(h poolHold) bool { return h.pool == p.pool })
	if p.keeps == nil {
		if i >= 0 {
			b.Queue(unholdSQL, p.pool)
		}
		return
	}
	now := poolHold{Hold: *p.keeps}
	if p.keeps.In >= 0 {
		at := p.now.Add(p.keeps.In)
		now.startsBy = &at
	}
	if i >= 0 && p.holds[i].same(now) && p.now.Sub(p.holds[i].lookedAt) < holdEvery {
		return
	}
	head := slices.IndexFunc(p.queue, func(q queued) bool { return q.id == now.Owner })
	b.Queue(holdSQL, p.pool, now.Owner, p.queue[head].rank, now.NodeID, now.Need.CPUMilli, now.Need.MemoryMiB, now.Need.DiskMiB, now.Need.Slots,
		now.startsBy, now.Longest.Seconds(), p.now)
}

func (h poolHold) same(o poolHold) bool {
	if h.Owner != o.Owner || h.NodeID != o.NodeID || h.Need != o.Need || (h.startsBy == nil) != (o.startsBy == nil) {
		return false
	}
	return h.startsBy == nil || h.startsBy.Sub(*o.startsBy).Abs() < time.Millisecond
}

// names are those that people know phases by, for the numbers that the pure
// model has for them. Only those that a sentence can name are in it.
type names map[int64]string

// learnNames names whom a sentence may name: the front of the line, and whoever
// holds a node.
func (p *pass) learnNames(verdicts []capacity.Verdict) {
	p.names = names{}
	for _, h := range p.holds {
		p.names[h.Owner] = h.name
	}
	for i, v := range verdicts {
		if v.Capacity != nil && (v.Position <= capacity.MaxAhead || v.Hold != nil) {
			p.names[v.ID] = p.queue[i].mission + "/" + p.queue[i].phase
		}
	}
}

// in returns a sentence with names for each "#17" in it.
func (n names) in(sentence string) string {
	before, rest, found := strings.Cut(sentence, "#")
	if !found {
		return sentence
	}
	var b strings.Builder
	for ; found; before, rest, found = strings.Cut(rest, "#") {
		b.WriteString(before)
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		id, _ := strconv.ParseInt(rest[:digits], 10, 64)
		if name, ok := n[id]; ok {
			b.WriteString(name)
		} else {
			b.WriteString("#" + rest[:digits])
		}
		rest = rest[digits:]
	}
	b.WriteString(before)
	return b.String()
}
