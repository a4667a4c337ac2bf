package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"

	"tidewait/internal/payload"
)

// What temporal.encryption may be.
const (
	EncryptNothing  = "none"
	EncryptPayloads = "payloads"
	EncryptAll      = "all"
)

// PayloadCodec reads the keys of temporal.encryption_keys and returns the codec of
// what Temporal gets. Without encryption it decrypts with the keys there are.
func PayloadCodec(t Temporal) (*payload.Codec, error) {
	keys, err := payload.ReadKeys(t.EncryptionKeys)
	if err != nil {
		return nil, fmt.Errorf("temporal.encryption_keys: %w", err)
	}
	return payload.NewCodec(keys, t.Encrypts())
}

// Encrypts reports whether anything is encrypted.
func (t Temporal) Encrypts() bool {
	return t.Encryption == EncryptPayloads || t.Encryption == EncryptAll
}

func (c *checker) encryption() {
	t := c.settings.Temporal
	relative := slices.ContainsFunc(t.EncryptionKeys, func(path string) bool { return !filepath.IsAbs(path) })
	c.want(!relative, "absolute paths", "temporal.encryption_keys")
	c.oneOf("temporal.encryption", t.Encryption, EncryptNothing, EncryptPayloads, EncryptAll)
	c.want(!t.Encrypts() || len(t.EncryptionKeys) > 0, "temporal.encryption_keys beside it: there is no encryption without a key",
		"temporal.encryption", "temporal.encryption_keys")
	s := c.settings.Codec
	c.want(isListenAddress(s.Address), "host:port, such as 127.0.0.1:8081", "codec.address")
	odd := slices.ContainsFunc(s.Origins, func(origin string) bool { return !isOrigin(origin) })
	c.want(!odd, "scheme, host and port of Web UIs, such as [http://127.0.0.1:8233]", "codec.origins")
	c.want(s.TokenFile == "" || filepath.IsAbs(s.TokenFile), "an absolute path", "codec.token_file")
	c.want(s.TokenFile != "" || isLoopback(s.Address), "an address of this machine, such as 127.0.0.1:8081, unless codec.token_file says what others must know: "+
		"a codec server decrypts for whoever may ask", "codec.address", "codec.token_file")
}

// isOrigin wants what a browser sends as Origin: no path, not even a slash.
func isOrigin(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && text == u.Scheme+"://"+u.Host
}

func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
