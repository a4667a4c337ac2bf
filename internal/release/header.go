package release

import "strconv"

// Keys of the headers of messages over NATS.
const (
	headerVersion  = "Tidewait-Version"
	headerProtocol = "Tidewait-Protocol"
)

// Stamp writes r into the headers of a message.
func (r Release) Stamp(header map[string][]string) {
	header[headerVersion] = []string{r.Version}
	header[headerProtocol] = []string{strconv.Itoa(r.Protocol)}
}

// Header returns the headers of a message that says nothing but r.
func (r Release) Header() map[string][]string {
	header := map[string][]string{}
	r.Stamp(header)
	return header
}

// Of reads whose message it is. said tells whether its headers say so at all: what
// people ask with tools of their own, such as the command nats, do not.
func Of(header map[string][]string) (r Release, said bool) {
	versions, protocols := header[headerVersion], header[headerProtocol]
	if len(versions) > 0 {
		r.Version = versions[0]
	}
	if len(protocols) > 0 {
		r.Protocol, _ = strconv.Atoi(protocols[0]) // 0 says that it cannot be read
	}
	return r, len(versions)+len(protocols) > 0
}
