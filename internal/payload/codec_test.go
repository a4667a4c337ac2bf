package payload_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"tidewait/internal/payload"
)

// keys writes a key for each id and reads them; the first one encrypts. A key
// depends on its id alone.
func keys(t interface {
	TempDir() string
	Fatal(args ...any)
}, ids ...string,
) payload.Keys {
	dir := t.TempDir()
	var paths []string
	for _, id := range ids {
		paths = append(paths, filepath.Join(dir, id))
		raw := strings.Repeat(fmt.Sprintf("%-8s", id), 4)[:payload.KeySize]
		if err := os.WriteFile(paths[len(paths)-1], []byte(base64.StdEncoding.EncodeToString([]byte(raw))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	k, err := payload.ReadKeys(paths)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func codec(t *testing.T, encrypt bool, ids ...string) *payload.Codec {
	t.Helper()
	c, err := payload.NewCodec(keys(t, ids...), encrypt)
	require.NoError(t, err)
	return c
}

func plain(text string) *commonpb.Payload {
	return &commonpb.Payload{Metadata: map[string][]byte{"encoding": []byte("json/plain"), "messageType": []byte("secret.Type")}, Data: []byte(text)}
}

func encoded(t *testing.T, c *payload.Codec, p *commonpb.Payload) *commonpb.Payload {
	t.Helper()
	out, err := c.Encode([]*commonpb.Payload{p})
	require.NoError(t, err)
	require.Len(t, out, 1)
	return out[0]
}

func requireEqual(t *testing.T, want *commonpb.Payload, got []*commonpb.Payload) {
	t.Helper()
	require.Len(t, got, 1)
	require.True(t, proto.Equal(want, got[0]), "%v is not %v", got[0], want)
}

func TestWhatIsEncryptedShowsItsKeyAlone(t *testing.T) {
	c := codec(t, true, "k2", "k1")
	secret := encoded(t, c, plain(`"make survey"`))
	require.Equal(t, map[string][]byte{"encoding": []byte("binary/encrypted"), "encryption-key-id": []byte("k2")}, secret.Metadata)
	for _, part := range []string{"make", "survey", "json", "secret.Type"} {
		require.NotContains(t, string(secret.Data), part)
	}
	require.NotEqual(t, secret.Data, encoded(t, c, plain(`"make survey"`)).Data, "each has a nonce of its own")
	decoded, err := c.Decode([]*commonpb.Payload{secret})
	require.NoError(t, err)
	requireEqual(t, plain(`"make survey"`), decoded)
}

func TestAnyPayloadComesBack(t *testing.T) {
	all := keys(t, "k1", "k2")
	rapid.Check(t, func(t *rapid.T) {
		c, err := payload.NewCodec(all, true)
		if err != nil {
			t.Fatal(err)
		}
		var in []*commonpb.Payload
		for range rapid.IntRange(0, 4).Draw(t, "payloads") {
			in = append(in, &commonpb.Payload{
				Metadata: rapid.MapOf(rapid.String(), rapid.SliceOf(rapid.Byte())).Draw(t, "metadata"),
				Data:     rapid.SliceOf(rapid.Byte()).Draw(t, "data"),
			})
		}
		before := slices.Clone(in)
		for i := range before {
			before[i] = proto.Clone(in[i]).(*commonpb.Payload)
		}
		secret, err := c.Encode(in)
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.Decode(secret)
		if err != nil {
			t.Fatal(err)
		}
		for i := range before {
			if !proto.Equal(before[i], in[i]) || !proto.Equal(before[i], out[i]) {
				t.Fatalf("payload %d: %v came back as %v, and is now %v", i, before[i], out[i], in[i])
			}
		}
	})
}

func TestRotation(t *testing.T) {
	old, both, latest := codec(t, true, "k1"), codec(t, true, "k2", "k1"), codec(t, true, "k2")
	first, second := encoded(t, old, plain("1")), encoded(t, both, plain("2"))
	require.Equal(t, "k2", string(second.Metadata["encryption-key-id"]), "the first key encrypts")

	decoded, err := both.Decode([]*commonpb.Payload{first})
	require.NoError(t, err)
	requireEqual(t, plain("1"), decoded)
	decoded, err = latest.Decode([]*commonpb.Payload{second})
	require.NoError(t, err)
	requireEqual(t, plain("2"), decoded)

	_, err = old.Decode([]*commonpb.Payload{second})
	require.EqualError(t, err, `the payload is encrypted with key "k2", and this process has k1: add that key to temporal.encryption_keys`)
	_, err = codec(t, false).Decode([]*commonpb.Payload{second})
	require.EqualError(t, err, `the payload is encrypted with key "k2", and this process has none: add that key to temporal.encryption_keys`)
}

func TestWhatIsNotEncryptedIsReadAsItIs(t *testing.T) {
	for _, encrypt := range []bool{true, false} {
		decoded, err := codec(t, encrypt, "k1").Decode([]*commonpb.Payload{plain("open")})
		require.NoError(t, err)
		requireEqual(t, plain("open"), decoded)
	}
}

func TestWithoutEncryptionKeysDecrypt(t *testing.T) {
	c := codec(t, false, "k1")
	require.Empty(t, c.EncryptsWith())
	requireEqual(t, plain("open"), []*commonpb.Payload{encoded(t, c, plain("open"))})
	decoded, err := c.Decode([]*commonpb.Payload{encoded(t, codec(t, true, "k1"), plain("closed"))})
	require.NoError(t, err)
	requireEqual(t, plain("closed"), decoded)
}

func TestNoEncryptionWithoutAKey(t *testing.T) {
	_, err := payload.NewCodec(payload.Keys{}, true)
	require.EqualError(t, err, "payloads cannot be encrypted without a key")
}

// TestChangedPayloadsDoNotOpen changes each part of an encrypted payload.
func TestChangedPayloadsDoNotOpen(t *testing.T) {
	c := codec(t, true, "k1", "k2")
	secret := encoded(t, c, plain("text"))
	_, err := c.Decode([]*commonpb.Payload{secret})
	require.NoError(t, err)
	for name, change := range map[string]func(*commonpb.Payload){
		"first byte":    func(p *commonpb.Payload) { p.Data[0] ^= 1 },
		"last byte":     func(p *commonpb.Payload) { p.Data[len(p.Data)-1] ^= 1 },
		"one byte less": func(p *commonpb.Payload) { p.Data = p.Data[:len(p.Data)-1] },
		"nothing":       func(p *commonpb.Payload) { p.Data = nil },
		"another key":   func(p *commonpb.Payload) { p.Metadata["encryption-key-id"] = []byte("k2") },
		"more metadata": func(p *commonpb.Payload) { p.Metadata["messageType"] = []byte("x") },
		"moved border": func(p *commonpb.Payload) {
			p.Metadata["encryption-key-i"] = []byte("dk1")
		},
	} {
		t.Run(name, func(t *testing.T) {
			changed := proto.Clone(secret).(*commonpb.Payload)
			change(changed)
			_, err := c.Decode([]*commonpb.Payload{changed})
			var unreadable *payload.UnreadableError
			require.ErrorAs(t, err, &unreadable)
			require.ErrorContains(t, err, "does not open with it: cipher: message authentication failed; it was changed, or the key of that name is another one here")
		})
	}
}

func TestReadKeysRefuses(t *testing.T) {
	dir := t.TempDir()
	path := func(name, text string, mode os.FileMode) string {
		full := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o700))
		require.NoError(t, os.WriteFile(full, []byte(text), 0o600))
		require.NoError(t, os.Chmod(full, mode))
		return full
	}
	good := strings.Repeat("A", 43) + "="
	for _, c := range []struct {
		name  string
		paths []string
		says  string
	}{
		{"open", []string{path("open", good, 0o604)}, "the key " + dir + "/open is not safe: its mode is 0604, so that others may read or change it; make it 0600"},
		{"missing", []string{dir + "/none"}, "the key " + dir + "/none cannot be read: no such file or directory"},
		{"short", []string{path("short", good[:40], 0o600)}, "the key " + dir + "/short is not 32 bytes in base64; make one with: openssl rand -base64 32"},
		{"hex", []string{path("hex", strings.Repeat("ab", 32), 0o600)}, "the key " + dir + "/hex is not 32 bytes in base64; make one with: openssl rand -base64 32"},
		{"empty", []string{path("empty", "", 0o600)}, "the key " + dir + "/empty is not 32 bytes in base64; make one with: openssl rand -base64 32"},
		{"odd name", []string{path("a key", good, 0o600)}, "the key " + dir + "/a key has a name that is no id: want letters, digits, dots, - and _, at most 63"},
		{"twice", []string{path("k", good, 0o600), path("other/k", good, 0o600)}, "the key " + dir + "/other/k has the same name as another one: k; a key's name is its id"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := payload.ReadKeys(c.paths)
			require.EqualError(t, err, c.says)
		})
	}
}

func FuzzDecode(f *testing.F) {
	c, err := payload.NewCodec(keys(f, "k1"), true)
	if err != nil {
		f.Fatal(err)
	}
	secret, err := c.Encode([]*commonpb.Payload{plain("text")})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(payload.Encoding, "k1", secret[0].Data)
	f.Add(payload.Encoding, "k1", []byte{})
	f.Add(payload.Encoding, "", []byte("short"))
	f.Add("json/plain", "k1", []byte("{}"))
	f.Fuzz(func(t *testing.T, encoding, id string, data []byte) {
		in := &commonpb.Payload{Metadata: map[string][]byte{converter.MetadataEncoding: []byte(encoding), payload.MetadataID: []byte(id)}, Data: data}
		out, err := c.Decode([]*commonpb.Payload{in})
		switch {
		case encoding != payload.Encoding && (err != nil || out[0] != in):
			t.Errorf("what is not encrypted was not left alone: %v, %v", out, err)
		case encoding == payload.Encoding && err == nil && !proto.Equal(out[0], plain("text")):
			t.Errorf("a payload that nobody encrypted opened: %v", out[0])
		}
	})
}
