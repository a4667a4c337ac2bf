package oam

import (
	"fmt"
	"math"
)

var (
	spreadShape = shape{
		what: "a scaler", keys: []string{"instances", "spread"}, oldKeys: []string{"replicas"}, closed: true, shortest: 1,
	}
	spreadTargetShape = shape{
		what: "a spread", keys: []string{"name", "requirements", "weight"}, closed: true, shortest: 3,
	}
)

// spread fails when the properties are not those of a scaler.
func (d *decoder) spread(v value) Spread {
	f := d.object(v, spreadShape)
	instances := f.get("replicas")
	switch {
	case instances.node == nil:
		instances = f.required("instances")
	case f.get("instances").node != nil:
		d.fail(instances, "replicas is an old name of instances; keep one of them")
	}
	return Spread{
		Instances: d.count(instances),
		Spread:    noneIsNil(listOf(d, f.lenient("spread"), (*decoder).spreadTarget)),
	}
}

func (d *decoder) spreadTarget(v value) SpreadTarget {
	f := d.object(v, spreadTargetShape)
	target := SpreadTarget{
		Name:         d.text(f.required("name")),
		Requirements: emptyIsNil(d.texts(f.lenient("requirements"))),
	}
	if v := f.optional("weight"); v.node != nil {
		target.Weight = new(d.count(v))
	}
	return target
}

// count reads a whole number that is not negative.
func (d *decoder) count(v value) int {
	if v.node == nil {
		return 0
	}
	if v.kind != number {
		d.refuse(v, "a whole number", "")
		return 0
	}
	whole, ok := parseWhole(v.text)
	switch {
	case !ok || whole.Sign() < 0:
		d.fail(v, fmt.Sprintf("%s is no whole number from 0 on", quoteless(v.text)))
	case !whole.IsInt64() || whole.Int64() > math.MaxInt32:
		d.outOfRange = d.outOfRange || d.err == nil
		d.fail(v, fmt.Sprintf("%s is too large; at most %d is possible", quoteless(v.text), math.MaxInt32))
	default:
		return int(whole.Int64())
	}
	return 0
}
