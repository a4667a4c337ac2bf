package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"tidewait/internal/capacity"
	"tidewait/internal/ledger"
	"tidewait/internal/oam"
	"tidewait/internal/scaler"
	"tidewait/internal/wadm"
)

// growth measures how the figures that bound a large installation grow: of the pure
// code, of store and placer, and through Temporal.
func growth(ctx context.Context, b *bench) ([]family, error) {
	sizes := []int{10, 100, 1000, 10_000}
	through := []int{10, 50, 150, 500}
	if b.quick {
		sizes, through = []int{10, 30, 100}, []int{3, 6, 12}
	}
	var families []family
	for _, part := range []func(context.Context, *bench, []int) (family, error){
		waitingAtTheStore, nodesAtTheStore, applicationsAtTheStore, hostsAtThePlanner,
	} {
		f, err := part(ctx, b, sizes)
		if err != nil {
			return nil, err
		}
		families = append(families, f)
	}
	waiting, err := waitingThroughTemporal(ctx, b, through)
	if err != nil {
		return nil, err
	}
	kept, err := keptThroughTemporal(ctx, b, through)
	return append(append(families, waiting), kept...), err
}

// ofPasses are the curves of a queue.
var ofPasses = []string{
	"the pure pass", " ms",
	"a pass of the store in which nothing changed", " ms",
	"freed capacity to the head's placement", " ms",
}

// waitingAtTheStore lets more and more phases wait in front of nodes that are full.
func waitingAtTheStore(ctx context.Context, b *bench, sizes []int) (family, error) {
	nodes := b.pick(nodesInQueue, 50)
	f := family{
		title: fmt.Sprintf("Phases that wait, at placer and store, %s full nodes with %d runs each.", thousands(nodes), runsOfEach),
		of:    "phases", beyond: 100_000, curves: newCurves(ofPasses...),
	}
	q := &queueing{placing: placing{bench: b}}
	stop, err := q.start(ctx, "growth-waiting", func(ctx context.Context) error { return q.fillTo(ctx, nodes, runsOfEach, 0) })
	if err != nil {
		return f, err
	}
	for _, n := range sizes {
		if err = q.lengthen(ctx, n); err != nil {
			break
		}
		var samples []sample
		if samples, err = q.passesAt(ctx, nodes, n); err != nil {
			break
		}
		f.add(n, samples...)
	}
	return f, errors.Join(err, stop())
}

// nodesAtTheStore puts a queue in front of fleets of several sizes, each in a
// database of its own: a new node would be filled from the queue.
func nodesAtTheStore(ctx context.Context, b *bench, sizes []int) (family, error) {
	length := b.pick(1000, 30)
	f := family{
		title: fmt.Sprintf("Nodes, at placer and store, all full with one run each, %s phases wait.", thousands(length)),
		of:    "nodes", beyond: 100_000, curves: newCurves(ofPasses...),
	}
	for _, n := range sizes {
		q := &queueing{placing: placing{bench: b}}
		stop, err := q.start(ctx, fmt.Sprintf("growth-nodes-%d", n), func(ctx context.Context) error { return q.fillTo(ctx, n, 1, length) })
		if err != nil {
			return f, err
		}
		samples, err := q.passesAt(ctx, n, length)
		if err = errors.Join(err, stop()); err != nil {
			return f, err
		}
		f.add(n, samples...)
	}
	return f, nil
}

// lengthen lets phases wait until there are n.
func (q *queueing) lengthen(ctx context.Context, n int) error {
	more, err := q.launchShapes(ctx, n-len(q.waiting))
	if err != nil {
		return err
	}
	q.waiting = append(q.waiting, more...)
	return q.askAll(ctx, more, 0)
}

// passesAt measures [ofPasses] with the queue as it is. Phases that are placed are
// made up for by others.
func (q *queueing) passesAt(ctx context.Context, nodes, length int) ([]sample, error) {
	pure, err := q.purePasses(nodes, length)
	if err != nil {
		return nil, err
	}
	quiet, err := q.passes(ctx, q.repetitions(25, 5))
	if err != nil {
		return nil, err
	}
	freed, err := q.freedToHead(ctx, min(q.repetitions(25, 5), length/2, nodes))
	if err != nil {
		return nil, err
	}
	return []sample{pure, quiet, freed}, q.lengthen(ctx, length)
}

// purePasses is how long the decision alone takes, without a database.
func (q *queueing) purePasses(nodes, length int) (took sample, err error) {
	fleet := make([]capacity.Node, nodes)
	for i := range fleet {
		all := capacity.Resources{CPUMilli: 1000, MemoryMiB: 64 << 10, DiskMiB: 1 << 20, Slots: 64}
		held := capacity.Resources{CPUMilli: 1000, MemoryMiB: 512, DiskMiB: 64, Slots: 1}
		fleet[i] = capacity.Node{
			ID: fmt.Sprintf("node-%05d", i), State: capacity.Ready, Arch: "amd64", Backends: map[string]capacity.Offer{pool: {OK: true}},
			Allocatable: all, Free: all.Sub(held), Runs: []capacity.Run{{Holds: held, EndsIn: time.Duration(i%60) * time.Minute}},
		}
	}
	queue := make([]capacity.Waiting, length)
	for i := range queue {
		queue[i] = capacity.Waiting{ID: int64(i), Longest: time.Hour, Demand: capacity.Demand{Backend: pool, Resources: capacity.Resources{
			CPUMilli: 1000, MemoryMiB: 512 + int64(i%shapesInQueue), DiskMiB: 64, Slots: 1,
		}}}
	}
	for range q.repetitions(25, 5) {
		began := time.Now()
		verdicts := capacity.Pass(fleet, queue)
		took = append(took, milliseconds(time.Since(began)))
		for _, v := range verdicts {
			if v.Capacity == nil {
				return nil, errors.New("a full fleet placed a phase")
			}
		}
	}
	return took, nil
}

// applicationsAtTheStore stores more and more applications of one lattice.
func applicationsAtTheStore(ctx context.Context, b *bench, sizes []int) (family, error) {
	f := family{
		title: "Applications, at the store, one lattice.", of: "applications", beyond: 100_000,
		curves: newCurves("a list of all", " ms", "a put", " ms", "a status", " ms"),
	}
	m := &placing{bench: b}
	stop, err := m.start(ctx, "growth-applications", func(context.Context) error { return nil })
	if err != nil {
		return f, err
	}
	stored := 0
	for _, n := range sizes {
		var samples []sample
		if samples, err = m.applicationsAt(ctx, &stored, n); err != nil {
			break
		}
		f.add(n, samples...)
	}
	return f, errors.Join(err, stop())
}

func (m *placing) applicationsAt(ctx context.Context, stored *int, n int) ([]sample, error) {
	m.say("growth: %d applications", n)
	put := func(ctx context.Context, i int) error {
		v := ledger.AppVersion{Version: "v1", Manifest: json.RawMessage(appDocument(i, "v1"))}
		_, err := m.store.PutApplication(ctx, appKey(i), v, uuid.New())
		return err
	}
	_, _, err := storm(ctx, 8, n-*stored, func(ctx context.Context, _, i int) error { return put(ctx, *stored+i) })
	if err != nil {
		return nil, err
	}
	*stored = n
	times := m.repetitions(25, 5)
	var list, puts, status sample
	for range times {
		began := time.Now()
		all, _, err := m.store.ListApplications(ctx, ledger.DefaultAccount, wadm.DefaultLattice, "", 0)
		if err != nil {
			return nil, err
		}
		if len(all) != *stored {
			return nil, fmt.Errorf("%d applications are listed, not %d", len(all), *stored)
		}
		list = append(list, milliseconds(time.Since(began)))

		began = time.Now()
		if err := put(ctx, *stored); err != nil {
			return nil, err
		}
		puts = append(puts, milliseconds(time.Since(began)))
		*stored++

		began = time.Now()
		if _, err := m.store.ApplicationStatus(ctx, appKey(*stored/2)); err != nil {
			return nil, err
		}
		status = append(status, milliseconds(time.Since(began)))
	}
	return []sample{list, puts, status}, nil
}

func appKey(i int) ledger.AppKey {
	return ledger.AppKey{Account: ledger.DefaultAccount, Lattice: wadm.DefaultLattice, Name: appName(i)}
}

// hostsAtThePlanner plans one application on lattices of more and more hosts, each
// with twenty components of others.
func hostsAtThePlanner(_ context.Context, b *bench, sizes []int) (family, error) {
	f := family{
		title: "Hosts, at the planner, each with twenty components of other applications.", of: "hosts", beyond: 100_000,
		curves: newCurves("plan of an application that is new", " ms", "plan of one with an instance on each host", " ms"),
	}
	doc, err := oam.Parse(keptDocument(0), oam.JSON)
	if err != nil {
		return f, err
	}
	desired := scaler.List(doc.Manifest)
	for _, n := range sizes {
		b.say("growth: %d hosts", n)
		in := scaler.Input{App: keptName(0), Desired: desired, State: scaler.State{Hosts: busyHosts(n)}, Now: time.Now()}
		everywhere := in
		everywhere.Desired = onEachHost(desired, n)
		var fresh, wide sample
		for range b.repetitions(25, 5) {
			began := time.Now()
			scaler.Plan(in)
			fresh = append(fresh, milliseconds(time.Since(began)))
			began = time.Now()
			scaler.Plan(everywhere)
			wide = append(wide, milliseconds(time.Since(began)))
		}
		f.add(n, fresh, wide)
	}
	return f, nil
}

func busyHosts(n int) []scaler.Host {
	hosts := make([]scaler.Host, n)
	for i := range hosts {
		hosts[i] = scaler.Host{ID: fmt.Sprintf("N%055d", i), Labels: map[string]string{"zone": "a"}}
		for k := range 20 {
			hosts[i].Components = append(hosts[i].Components, scaler.Instances{
				ID: fmt.Sprintf("other%d-c%d", i, k), Image: "registry.example.com/other:1", Count: 1,
				Annotations: map[string]string{scaler.AnnotationManagedBy: "wadm", scaler.AnnotationApp: "other"},
			})
		}
	}
	return hosts
}

// onEachHost asks for as many instances of each component as there are hosts.
func onEachHost(desired []scaler.Scaler, n int) []scaler.Scaler {
	wide := make([]scaler.Scaler, len(desired))
	for i, s := range desired {
		if s.Workload != nil {
			w := *s.Workload
			w.Instances = n
			s.Workload = &w
		}
		wide[i] = s
	}
	return wide
}
