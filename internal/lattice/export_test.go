package lattice

import "tidewait/internal/scaler"

// MaxWords is the length up to which a host's words are kept.
const MaxWords = maxWords

// Answers reads an answer as each kind of question would.
func Answers(data []byte) (host HostInfo, inv Inventory, links []scaler.Link, values map[string]string, errs [4]error) {
	r, err := decodeReply("ask", data)
	if err != nil {
		return host, inv, links, values, [4]error{err, err, err, err}
	}
	host, errs[0] = decodeHostInfo("ask", r)
	inv, errs[1] = decodeInventory("ask", "NBLXKJH55FNWV4HFRTDF6ZD354X2YDBROJD2QJ7V5SRR42PZGQYJWG5X", r)
	links, errs[2] = decodeLinks("ask", r)
	values, _, errs[3] = decodeResponse[map[string]string]("ask", r)
	return host, inv, links, values, errs
}

// Instances is what a scaler sees of an entry.
func (e Entry) Instances() scaler.Instances { return e.instances() }
