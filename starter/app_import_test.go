package main

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
)

func every(string) bool { return true }

// manifest is as much of one as tells whose it is.
func manifest(name string) string { return fmt.Sprintf(`{"metadata":{"name":%q}}`, name) }

func version(v, name string) api.ImportVersion {
	return api.ImportVersion{Version: v, Manifest: json.RawMessage(manifest(name))}
}

func ptr[T any](v T) *T { return &v }

func entries(pairs ...string) map[string][]byte {
	all := map[string][]byte{}
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i]] = []byte(pairs[i+1])
	}
	return all
}

func TestABucketIsReadInTheOrderOfItsPuts(t *testing.T) {
	require.Equal(t, bucketContents{apps: []storedApp{
		{lattice: "default", name: "shop", versions: []api.ImportVersion{version("v10", "shop"), version("v2", "shop")}, deployed: ptr("v2")},
		{lattice: "east", name: "a-b", versions: []api.ImportVersion{version("", "a-b")}},
	}}, readBucket(entries(
		"default", `["shop"]`,
		"default-shop", `{"manifests":{"v10":`+manifest("shop")+`,"v2":`+manifest("shop")+`},"deployed_version":"v2"}`,
		"east", ` ["a-b"]`,
		"east-a-b", ` {"manifests":{"":`+manifest("a-b")+`},"deployed_version":null}`,
	), "", every))
}

// As wadm 0.21 leaves it when lattices and applications have dashes in common.
func TestKeysThatCollideAreToldApart(t *testing.T) {
	got := readBucket(entries(
		"a", `["b-c"]`,
		"a-b", `["c"]`,
		"a-b-c", `{"manifests":{"v10":`+manifest("c")+`,"v1":`+manifest("b-c")+`},"deployed_version":"v1"}`,
		"x-y", `["other"]`, // hides application y of lattice x
		"x", `["y"]`,
		"x-y-other", `{"manifests":{"v1":`+manifest("other")+`},"deployed_version":null}`,
	), "", every)
	require.Equal(t, []storedApp{
		{lattice: "a", name: "b-c", versions: []api.ImportVersion{version("v1", "b-c")}, deployed: ptr("v1")},
		{lattice: "a-b", name: "c", versions: []api.ImportVersion{version("v10", "c")}},
		{lattice: "x-y", name: "other", versions: []api.ImportVersion{version("v1", "other")}},
	}, got.apps)
	require.Equal(t, []string{
		"key a-b-c holds versions of c in lattice a-b and b-c in lattice a, whose keys are the same; each gets its own",
		"lattice x lists application y, of which nothing is stored",
	}, got.notes)
}

func TestWhatIsOddInABucketIsTold(t *testing.T) {
	got := readBucket(entries(
		"default", `["gone", 7]`,
		"east", `["shop"]`,
		"east-extra", `{"manifests":{"v1":`+manifest("extra")+`},"deployed_version":"v9"}`,
		"east-shop", `{"manifests":{"v1":`+manifest("shop")+`,"v2":{"kind":"x"},"v3":`+manifest("elsewhere")+`,"v1":`+manifest("shop")+`},"deployed_version":"v1"}`,
		"junk", `"text"`,
		"more", `{"manifests":[]}`,
		"nothing", ``,
	), "", every)
	require.Equal(t, []storedApp{
		{lattice: "east", name: "extra", versions: []api.ImportVersion{version("v1", "extra")}},
		{lattice: "east", name: "shop", versions: []api.ImportVersion{version("v1", "shop")}, deployed: ptr("v1")},
	}, got.apps)
	require.Equal(t, []string{
		"key default is a list, but not of names: json: cannot unmarshal number into Go value of type string",
		"application extra is not in the list of lattice east, so wadm does not show it",
		"key east-extra says that version v9 is deployed, which it does not hold; nothing of it is deployed",
		`key east-shop holds version v2 of an application named "", which has no place there; it is left out`,
		`key east-shop holds version v3 of an application named "elsewhere", which has no place there; it is left out`,
		"key junk holds neither a list of names nor an application; it is left out",
		"key more holds neither a list of names nor an application; it is left out",
		"key nothing holds neither a list of names nor an application; it is left out",
	}, got.notes)
}

func TestOnlyTheAccountAndTheLatticeThatAreWanted(t *testing.T) {
	all := entries(
		"ACC-east", `["shop"]`,
		"ACC-east-shop", `{"manifests":{"v1":`+manifest("shop")+`},"deployed_version":null}`,
		"ACC-west", `["shop"]`,
		"ACC-west-shop", `{"manifests":{"v1":`+manifest("shop")+`},"deployed_version":null}`,
		"OTHER-east", `["shop"]`,
		"OTHER-east-shop", `{"manifests":{"v2":`+manifest("shop")+`},"deployed_version":null}`,
	)
	east := func(lattice string) bool { return lattice == "east" }
	require.Equal(t, bucketContents{apps: []storedApp{
		{lattice: "east", name: "shop", versions: []api.ImportVersion{version("v1", "shop")}},
	}}, readBucket(all, "ACC", east))
	require.Empty(t, readBucket(all, "", east))
	require.Len(t, readBucket(all, "", every).apps, 3)
}

func TestVersionsAreDividedInOrder(t *testing.T) {
	size := func(v api.ImportVersion) int {
		text, err := json.Marshal(v)
		require.NoError(t, err)
		return len(text) + 1
	}
	large := api.ImportVersion{Version: "large", Manifest: json.RawMessage(`{"metadata":{"name":"shop","annotations":{"description":"<<<<<<<<<<<<<<<<<<<<<<"}}}`)}
	versions := []api.ImportVersion{version("v1", "shop"), version("v2", "shop"), large, version("v3", "shop")}
	one := size(versions[0])
	groups, left := divide(versions, 2*one, 2*one)
	require.Equal(t, [][]api.ImportVersion{versions[:2], versions[3:]}, groups)
	require.Equal(t, []string{"large"}, left)
	groups, left = divide(versions, 2*one-1, 2*one)
	require.Equal(t, [][]api.ImportVersion{versions[:1], versions[1:2], versions[3:]}, groups)
	require.Equal(t, []string{"large"}, left)
	groups, left = divide(versions, 2*one, size(large))
	require.Equal(t, [][]api.ImportVersion{versions[:2], {large}, versions[3:]}, groups)
	require.Empty(t, left)
	groups, left = divide(versions, 3*one+size(large), 3*one+size(large))
	require.Equal(t, [][]api.ImportVersion{versions}, groups)
	require.Empty(t, left)
	groups, left = divide(versions, 3, 3)
	require.Empty(t, groups)
	require.Len(t, left, 4)
}

// What is referred to comes first, even when the references go in a circle.
func TestSharedApplicationsAreBroughtFirst(t *testing.T) {
	app := func(lattice, name, needs string) storedApp {
		text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Application","metadata":{"name":%q},"spec":{"components":[
			{"name":"c","type":"component","properties":{"application":{"name":%q,"component":"c"}}}]}}`, name, needs)
		return storedApp{lattice: lattice, name: name, deployed: ptr("v1"), versions: []api.ImportVersion{{Version: "v1", Manifest: json.RawMessage(text)}}}
	}
	var order []string
	for _, a := range neededFirst([]storedApp{app("east", "a", "z"), app("east", "b", "c"), app("east", "c", "b"), app("east", "m", "z"), app("east", "z", "y"), app("west", "y", "a")}) {
		order = append(order, a.lattice+"/"+a.name)
	}
	require.Equal(t, []string{"east/z", "east/a", "east/c", "east/b", "east/m", "west/y"}, order)
}

// bucket fills a bucket as a wadm would.
func (b *bus) bucket(name string, pairs ...string) {
	b.t.Helper()
	kv, err := b.jetstream().CreateKeyValue(context.Background(), jetstream.KeyValueConfig{Bucket: name})
	require.NoError(b.t, err)
	for key, value := range entries(pairs...) {
		_, err := kv.Put(context.Background(), key, value)
		require.NoError(b.t, err)
	}
}

func TestAnImportWithoutWhatItNeeds(t *testing.T) {
	b := newBus(t)
	require.Equal(t, outcome{1, "", "tidewait: there is no bucket wadm_manifests on " + b.url + "; give the wadm's NATS with --from, and its bucket with --bucket\n"}, b.run("app", "import"))
	require.Equal(t, outcome{2, "", "tidewait: \"a b\" is not the name of a bucket\n"}, b.run("app", "import", "--bucket", "a b"))
	b.bucket("wadm_manifests")
	require.Equal(t, outcome{0, "no applications to import\n", ""}, b.run("app", "import"))
	b.bucket("mine", "default", `["shop"]`, "default-shop", `{"manifests":{"v1":`+manifest("shop")+`},"deployed_version":null}`)
	b.replies("wadm.api.default.model.history.any", `{"message":"Model deployment history is not currently supported. It may be added in a future version","result":"error"}`)
	require.Equal(t, outcome{5, "", "warning: a wadm still answers on " + b.url + "; stop it before what is imported meets its hosts: both would start and stop the same things\n" +
		"tidewait: application shop of lattice default: no engine answers on " + b.url + "; start one with `tidewait dev` or `tidewait-worker run --roles engine`, or set nats.url; the import can be repeated\n"},
		b.run("app", "import", "--bucket", "mine"))
	got := b.run("app", "import", "--from", "nats://"+closedPort(t))
	require.Equal(t, 5, got.code)
	require.Contains(t, got.errors, "tidewait: the wadm's NATS: cannot reach NATS at nats://127.0.0.1:")
}
