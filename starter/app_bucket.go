package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tidewait/internal/api"
)

// readTimeout bounds each look into the wadm's bucket.
const readTimeout = 10 * time.Second

// readEntries reads every key of a bucket.
func readEntries(ctx context.Context, conn *nats.Conn, bucket string) (map[string][]byte, error) {
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, err
	}
	asking, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	kv, err := js.KeyValue(asking, bucket)
	if err != nil {
		return nil, bucketFault(ctx, conn, bucket, err)
	}
	listed, err := kv.ListKeys(asking)
	if err != nil {
		return nil, bucketFault(ctx, conn, bucket, err)
	}
	entries := map[string][]byte{}
	for key := range listed.Keys() {
		entries[key] = nil
	}
	for key := range entries {
		value, err := readEntry(ctx, kv, key)
		if errors.Is(err, jetstream.ErrKeyNotFound) { // it was deleted meanwhile
			delete(entries, key)
			continue
		}
		if err != nil {
			return nil, bucketFault(ctx, conn, bucket, err)
		}
		entries[key] = value
	}
	return entries, nil
}

func readEntry(ctx context.Context, kv jetstream.KeyValue, key string) ([]byte, error) {
	asking, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	entry, err := kv.Get(asking, key)
	if err != nil {
		return nil, err
	}
	return entry.Value(), nil
}

func bucketFault(ctx context.Context, conn *nats.Conn, bucket string, err error) error {
	url := safeURL(conn.ConnectedUrl())
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, jetstream.ErrBucketNotFound):
		return failed("there is no bucket %s on %s; give the wadm's NATS with --from, and its bucket with --bucket", bucket, url)
	case errors.Is(err, jetstream.ErrInvalidBucketName):
		return usage("%q is not the name of a bucket", bucket)
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount), errors.Is(err, nats.ErrNoResponders):
		return unreachable("NATS on %s has no JetStream, and so no bucket %s; give the wadm's NATS with --from", url, bucket)
	}
	return unreachable("cannot read the bucket %s on %s: %w", bucket, url, err)
}

// storedApp is an application as a wadm has stored it.
type storedApp struct {
	lattice, name string
	versions      []api.ImportVersion // in the order they were put
	deployed      *string
}

// bucketContents is what a wadm's bucket holds.
type bucketContents struct {
	apps  []storedApp // by lattice and name
	notes []string    // what is odd about it, for people
}

// bucketReader makes sense of the keys and values of a wadm's bucket: under a
// lattice's name stands the list of its applications' names, under lattice-name
// an application with all its versions. Both parts may have dashes, so keys
// collide; wadm does not notice. What a value is, its shape says; whose a version
// is, its manifest.
type bucketReader struct {
	account string              // of multitenant keys, which begin with it; empty: none
	wanted  func(string) bool   // which lattices
	names   map[string][]string // of applications, by lattice
	found   bucketContents
}

func readBucket(entries map[string][]byte, account string, wanted func(lattice string) bool) bucketContents {
	r := &bucketReader{account: account, wanted: wanted, names: map[string][]string{}}
	keys := slices.Sorted(maps.Keys(entries))
	for _, key := range keys {
		if shape(entries[key]) == '[' {
			r.readNames(key, entries[key])
		}
	}
	for _, key := range keys {
		if shape(entries[key]) != '[' {
			r.readApps(key, entries[key])
		}
	}
	r.missing()
	slices.SortFunc(r.found.apps, func(a, b storedApp) int {
		return strings.Compare(a.lattice+"\x00"+a.name, b.lattice+"\x00"+b.name)
	})
	return r.found
}

func (r *bucketReader) note(format string, args ...any) {
	r.found.notes = append(r.found.notes, fmt.Sprintf(format, args...))
}

// shape is the first character of a JSON value.
func shape(value []byte) byte {
	value = bytes.TrimLeft(value, " \t\r\n")
	if len(value) == 0 {
		return 0
	}
	return value[0]
}

// inAccount takes the account off a key and reports whether the key is its.
func (r *bucketReader) inAccount(key string) (rest string, ours bool) {
	if r.account == "" {
		return key, true
	}
	return strings.CutPrefix(key, r.account+"-")
}

func (r *bucketReader) readNames(key string, value []byte) {
	lattice, ours := r.inAccount(key)
	if !ours || !r.wanted(lattice) {
		return
	}
	var names []string
	if err := json.Unmarshal(value, &names); err != nil {
		r.note("key %s is a list, but not of names: %v", key, err)
		return
	}
	r.names[lattice] = names
}

// storedVersions is the value of an application's key.
type storedVersions struct {
	Manifests orderedManifests `json:"manifests"`
	Deployed  *string          `json:"deployed_version"`
}

// orderedManifests is a JSON object from versions to manifests, in its order,
// which is the order of the puts.
type orderedManifests []api.ImportVersion

// UnmarshalJSON reads the keys in order. Of a key that stands twice the last
// value counts, as it does for wadm.
func (o *orderedManifests) UnmarshalJSON(text []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	if open, err := decoder.Token(); err != nil || open != json.Delim('{') {
		return errors.New("manifests is not an object")
	}
	*o = orderedManifests{}
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return err
		}
		v := api.ImportVersion{Version: fmt.Sprint(key)}
		if err := decoder.Decode(&v.Manifest); err != nil {
			return err
		}
		same := func(other api.ImportVersion) bool { return other.Version == v.Version }
		if i := slices.IndexFunc(*o, same); i >= 0 {
			(*o)[i] = v
			continue
		}
		*o = append(*o, v)
	}
	return nil
}

// readApps reads the application of one key: more than one when keys collide.
func (r *bucketReader) readApps(key string, value []byte) {
	rest, ours := r.inAccount(key)
	if !ours {
		return
	}
	var stored storedVersions
	if err := json.Unmarshal(value, &stored); err != nil || stored.Manifests == nil {
		r.note("key %s holds neither a list of names nor an application; it is left out", key)
		return
	}
	apps, wanted := r.split(key, rest, stored), 0
	for _, a := range apps {
		if r.wanted(a.lattice) {
			r.found.apps = append(r.found.apps, a)
			r.listed(a)
			wanted++
		}
	}
	if len(apps) > 1 && wanted > 0 {
		r.note("key %s holds versions of %s, whose keys are the same; each gets its own", key, several(apps))
	}
	if stored.Deployed != nil && !slices.ContainsFunc(apps, func(a storedApp) bool { return a.deployed != nil }) {
		r.note("key %s says that version %s is deployed, which it does not hold; nothing of it is deployed", key, shownVersion(*stored.Deployed))
	}
}

// split divides the versions of a key among the applications their manifests
// name, in the order of the versions.
func (r *bucketReader) split(key, rest string, stored storedVersions) []storedApp {
	var apps []storedApp
	for _, v := range stored.Manifests {
		name := manifestName(v.Manifest)
		lattice, fits := strings.CutSuffix(rest, "-"+name)
		if !fits || lattice == "" || name == "" {
			r.note("key %s holds version %s of an application named %q, which has no place there; it is left out", key, shownVersion(v.Version), name)
			continue
		}
		i := slices.IndexFunc(apps, func(a storedApp) bool { return a.name == name })
		if i < 0 {
			i, apps = len(apps), append(apps, storedApp{lattice: lattice, name: name})
		}
		apps[i].versions = append(apps[i].versions, v)
		if stored.Deployed != nil && *stored.Deployed == v.Version {
			apps[i].deployed = stored.Deployed
		}
	}
	return apps
}

func manifestName(manifest json.RawMessage) string {
	var m struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
	}
	_ = json.Unmarshal(manifest, &m) // what is no manifest has no name
	return m.Metadata.Name
}

func several(apps []storedApp) string {
	texts := make([]string, len(apps))
	for i, a := range apps {
		texts[i] = fmt.Sprintf("%s in lattice %s", a.name, a.lattice)
	}
	return strings.Join(texts, " and ")
}

func (r *bucketReader) listed(a storedApp) {
	if !slices.Contains(r.names[a.lattice], a.name) {
		r.note("application %s is not in the list of lattice %s, so wadm does not show it", a.name, a.lattice)
	}
}

// missing notes names without an application.
func (r *bucketReader) missing() {
	for _, lattice := range slices.Sorted(maps.Keys(r.names)) {
		for _, name := range r.names[lattice] {
			if !slices.ContainsFunc(r.found.apps, func(a storedApp) bool { return a.lattice == lattice && a.name == name }) {
				r.note("lattice %s lists application %s, of which nothing is stored", lattice, name)
			}
		}
	}
}
