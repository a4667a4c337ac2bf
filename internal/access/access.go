// Package access says which subjects of NATS each role of Tidewait may use, and no
// more: what an engine, a gateway, a node's agent and the command line publish and
// subscribe to, out of the constants that they use themselves. From it come the
// configuration of a server and the permissions of users in JWTs.
//
// Everybody subscribes to an inbox of their own instead of all of them: the setting
// nats.inbox_prefix has to be that of their user.
package access

import (
	"slices"

	"tidewait/internal/api"
	"tidewait/internal/wadm"
)

// User is somebody who connects to NATS.
type User struct {
	Name      string   // such as engine, or node.node-a
	Publish   []string // subjects, which may have wildcards
	Subscribe []string
	// Responds lets it answer each request that it was sent once, wherever the reply
	// is wanted.
	Responds bool
}

// InboxPrefix is what nats.inbox_prefix has to be for a user.
func (u User) InboxPrefix() string { return "_INBOX." + u.Name }

func user(name string, responds bool, publish, subscribe []string) User {
	u := User{Name: name, Responds: responds, Publish: slices.Compact(slices.Sorted(slices.Values(publish)))}
	u.Subscribe = append(slices.Compact(slices.Sorted(slices.Values(subscribe))), u.InboxPrefix()+".>")
	return u
}

// discovery is what answers `nats micro ls` and the like.
const discovery = "$SRV.>"

// Engine runs workflows and answers requests. It makes the streams that are missing.
func Engine() User {
	return user("engine", true,
		slices.Concat(
			[]string{api.SubjectSealSecrets("*"), wadm.StatusSubject("", "*", "*"), wadm.EventSubject("", "*", ">")},
			makes(api.LogStream), makes(bucketStream(api.BucketWorkspaces)), makes(bucketStream(api.BucketBundles)),
			makes(wadm.StatusStream), makes(wadm.EventStream), []string{js("STREAM.MSG.GET." + wadm.StatusStream)},
		),
		[]string{
			"tidewait.api.>", api.SubjectNodeHeartbeats, api.SubjectGatewayHeartbeats, api.SubjectMayCommit, api.SubjectGatewayNeeds,
			api.SubjectRunSecrets, api.SubjectLattice("*", "*"), wadm.DefaultPrefix + ".>", discovery,
		},
	)
}

// Gateway is the gateway with an id. It reads the results of every node: which one a
// mission's phases run on is not known before.
func Gateway(id string) User {
	return user("gateway."+id, true,
		slices.Concat(
			[]string{api.SubjectGatewayHeartbeat(id), api.SubjectMayCommit, api.SubjectGatewayNeeds, js("STREAM.INFO.*")},
			reads("*"), writes(api.BucketWorkspaces), writes(api.BucketBundles), lists(api.BucketBundles),
		),
		[]string{api.SubjectGateway(id, "*"), api.SubjectSealSecrets(id), discovery},
	)
}

// Node is the agent of a node.
func Node(id string) User {
	own := api.BucketResults(id)
	return user("node."+id, false,
		slices.Concat(
			[]string{
				api.SubjectNodeHeartbeat(id), api.SubjectNodeSecrets(id), api.SubjectNodeLogs(id), info(api.LogStream),
				js("DIRECT.GET." + api.LogStream + "." + api.SubjectNodeLogs(id)), info(bucketStream(api.BucketBundles)),
				js("DIRECT.GET." + bucketStream(own) + "." + metas(own)),
			},
			opens(api.BucketWorkspaces), reads(api.BucketWorkspaces), opens(own), writes(own),
		),
		nil,
	)
}

// Reader is the command line of somebody who looks and changes nothing.
func Reader() User { return user("reader", false, looking(), looked()) }

// Operator is the command line of somebody who launches missions, deploys applications
// and takes nodes out of service.
func Operator() User {
	return user("operator", false,
		slices.Concat(looking(), []string{"tidewait.api.>", wadm.DefaultPrefix + ".>"}, writes(api.BucketWorkspaces)),
		looked(),
	)
}

func looking() []string {
	requests := []string{
		api.SubjectMissionList, api.SubjectMissionShow, api.SubjectNodeList, api.SubjectNodeShow, api.SubjectWaitList, api.SubjectAppShow,
		api.SubjectLatticeList, api.SubjectLattice("*", "*"), api.SubjectGateway("*", "*"), api.SubjectRelease,
	}
	for _, op := range []wadm.Operation{wadm.OpList, wadm.OpGet, wadm.OpVersions, wadm.OpStatus, wadm.OpHistory} {
		requests = append(requests, wadm.Subject(wadm.DefaultPrefix, "*", op, ""), wadm.Subject(wadm.DefaultPrefix, "*", op, "*"))
	}
	return slices.Concat(requests, opens(api.BucketWorkspaces), reads(api.BucketWorkspaces), pulls(api.LogStream))
}

func looked() []string {
	return []string{wadm.StatusSubject("", "*", "*"), wadm.EventSubject("", "*", ">")}
}

// Setup is `tidewait setup`, which makes the streams and the buckets of these nodes.
func Setup(nodes ...string) User {
	publish := slices.Concat(makes(api.LogStream), makes(bucketStream(api.BucketWorkspaces)), makes(bucketStream(api.BucketBundles)))
	for _, node := range nodes {
		publish = append(publish, makes(bucketStream(api.BucketResults(node)))...)
	}
	return user("setup", false, publish, nil)
}

// Observer is an engine on the side of the hosts of a lattice. It is a connection of
// the engine's process, and so has its inbox.
func Observer(lattice string) User {
	return User{
		Name: "observer." + lattice, Publish: []string{"wasmbus.ctl.v1." + lattice + ".>"},
		Subscribe: []string{"wasmbus.evt." + lattice + ".>", Engine().InboxPrefix() + ".>"},
	}
}

// Wadm is a client of the API of applications, such as wash, in one lattice. Such
// clients use the inboxes that everybody uses.
func Wadm(lattice string) User {
	return User{
		Name:      "wadm." + lattice,
		Publish:   []string{wadm.DefaultPrefix + "." + lattice + ".>", "wasmbus.ctl.v1." + lattice + ".>"},
		Subscribe: []string{"_INBOX.>", wadm.EventSubject("", lattice, ">"), wadm.StatusSubject("", lattice, "*"), "wasmbus.evt." + lattice + ".>"},
	}
}

// Host is the hosts of a lattice. They are alone with their engine and their clients in
// the lattice's account, speak to each other there as their components want, and keep
// their data in its JetStream.
func Host(lattice string) User {
	return User{Name: "host." + lattice, Publish: []string{">"}, Subscribe: []string{">"}}
}
