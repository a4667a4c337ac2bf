package wadmapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"tidewait/internal/store"
	"tidewait/internal/wadm"
)

// route is what kind of request it is.
type route struct {
	op    wadm.Operation
	named bool
}

// handler answers a request with the bytes of the reply. Its error becomes an
// error object.
type handler func(*Server, context.Context, *request) ([]byte, error)

// handlers are all requests there are.
var handlers = map[route]handler{
	{wadm.OpList, false}:    (*Server).listBare,
	{wadm.OpGet, false}:     (*Server).list,
	{wadm.OpGet, true}:      (*Server).get,
	{wadm.OpPut, false}:     (*Server).put,
	{wadm.OpDelete, true}:   (*Server).delete,
	{wadm.OpVersions, true}: (*Server).versionsOf,
	{wadm.OpDeploy, true}:   (*Server).deploy,
	{wadm.OpUndeploy, true}: (*Server).undeploy,
	{wadm.OpStatus, true}:   (*Server).status,
	{wadm.OpHistory, true}:  (*Server).history,
}

func (s *Server) get(ctx context.Context, r *request) ([]byte, error) {
	version, err := r.version()
	if err != nil {
		return nil, err
	}
	what := r.key.Name
	if version != nil {
		what += " " + shown(*version)
	}
	manifest, err := patient(ctx, func() (json.RawMessage, error) { return s.Store.Manifest(ctx, r.key, version) })
	if errors.Is(err, store.ErrNotFound) {
		return encode(wadm.GetReply{Result: wadm.ResultNotFound, Message: unknown(r.key.Name, version)})
	}
	if err != nil {
		return nil, err
	}
	return encode(wadm.GetReply{Result: wadm.ResultSuccess, Message: "fetched " + what, Manifest: manifest})
}

func (s *Server) versionsOf(ctx context.Context, r *request) ([]byte, error) {
	versions, err := patient(ctx, func() ([]wadm.VersionInfo, error) { return s.Store.ApplicationVersions(ctx, r.key) })
	if errors.Is(err, store.ErrNotFound) {
		return encode(wadm.VersionsReply{Result: wadm.ResultNotFound, Message: unknown(r.key.Name, nil)})
	}
	if err != nil {
		return nil, err
	}
	return versionsReply(r.key.Name, versions, r.limit)
}

// versionsReply has as many of the newest versions as fit, and the deployed one.
func versionsReply(name string, versions []wadm.VersionInfo, most int) ([]byte, error) {
	reply := wadm.VersionsReply{Result: wadm.ResultSuccess, Message: count(len(versions), "version") + " of " + name, Versions: versions}
	body, err := encode(reply)
	if err != nil || len(body) <= most {
		return body, err
	}
	keep, err := fittingVersions(versions, most-versionsRoom)
	if err != nil {
		return nil, err
	}
	reply.Total, reply.Versions = len(versions), newest(versions, keep)
	reply.Message = fmt.Sprintf("the newest %d of %s of %s; more do not fit into a reply", keep, count(len(versions), "version"), name)
	return encode(reply)
}

// versionsRoom is what everything but the newest versions takes of a reply.
const versionsRoom = 1024

// fittingVersions is how many versions, counted from the newest, are at most so
// many bytes.
func fittingVersions(versions []wadm.VersionInfo, most int) (int, error) {
	bytes := 0
	for keep := range len(versions) {
		v, err := encode(versions[len(versions)-1-keep])
		if err != nil {
			return 0, err
		}
		if bytes += len(v) + len(","); bytes > most {
			return keep, nil
		}
	}
	return len(versions), nil
}

// newest is the last versions and the deployed one, in order.
func newest(versions []wadm.VersionInfo, keep int) []wadm.VersionInfo {
	cutAt := len(versions) - keep
	for _, v := range versions[:cutAt] {
		if v.Deployed {
			return append([]wadm.VersionInfo{v}, versions[cutAt:]...)
		}
	}
	return versions[cutAt:]
}

// status never says that there is no such application: it is undeployed.
func (s *Server) status(ctx context.Context, r *request) ([]byte, error) {
	status, err := patient(ctx, func() (json.RawMessage, error) { return s.Store.ApplicationStatus(ctx, r.key) })
	if errors.Is(err, store.ErrNotFound) {
		status, err = encode(wadm.NotDeployed())
	}
	if err != nil {
		return nil, err
	}
	return statusReply(r.key.Name, status, r.limit)
}

func statusReply(name string, status json.RawMessage, most int) ([]byte, error) {
	full := status
	for _, d := range []detail{everything, withoutScalers, shortMessages} {
		if d != everything {
			var err error
			if status, err = lessOf(full, d); err != nil {
				return nil, fmt.Errorf("the stored status of %s: %w", name, err)
			}
		}
		b := appendText([]byte(`{"result":"ok","message":`), "status of "+name)
		b = append(append(append(b, `,"status":`...), status...), '}')
		if len(b) <= most || d == shortMessages {
			return b, nil
		}
	}
	return nil, nil
}

func (s *Server) delete(ctx context.Context, r *request) ([]byte, error) {
	version, actor, err := r.change()
	if err != nil {
		return nil, err
	}
	gone, err := patient(ctx, func() (store.Deleted, error) {
		return s.Store.DeleteApplication(ctx, r.key, version, actor, s.Settings.ProtectShared)
	})
	if err != nil {
		return encode(wadm.DeleteReply{Result: wadm.ResultError, Message: s.refused(r, "deleted", err)})
	}
	reply := wadm.DeleteReply{Result: wadm.ResultNoop, Message: unknown(r.key.Name, version)}
	if gone.Undeploy {
		s.changed()
	}
	if gone.Found {
		reply = wadm.DeleteReply{Result: wadm.ResultDeleted, Message: "deleted " + r.key.Name, Undeploy: gone.Undeploy}
		if version != nil {
			reply.Message = fmt.Sprintf("deleted version %s of %s", shown(*version), r.key.Name)
		}
	}
	return fitting(r.limit, inUse(gone.Dependants), func(w []wadm.Warning) any {
		reply.Warnings = w
		return reply
	})
}

func (s *Server) deploy(ctx context.Context, r *request) ([]byte, error) {
	version, actor, err := r.change()
	if err != nil {
		return nil, err
	}
	reply := wadm.DeployReply{Result: wadm.ResultError, Name: r.key.Name, Version: version}
	deployed, err := patient(ctx, func() (store.DeployedVersion, error) {
		return s.Store.DeployApplication(ctx, r.key, version, actor, store.DeployOptions{Protect: s.Settings.ProtectShared})
	})
	var none *store.NoVersion
	var taken *store.IDTaken
	var missing *store.SharedMissing
	switch {
	case errors.As(err, &none):
		reply.Message = fmt.Sprintf("%s has no version %s", r.key.Name, shown(none.Version))
		return encode(reply)
	case errors.As(err, &taken):
		return nil, refusef("%s cannot be deployed (conflict): %v", r.key.Name, taken)
	case errors.As(err, &missing):
		return nil, refusef("%s cannot be deployed (conflict): no deployed shared application has %s",
			r.key.Name, enumerate(named(missing.References)))
	case errors.Is(err, store.ErrNotFound):
		reply.Result, reply.Message = wadm.ResultNotFound, unknown(r.key.Name, nil)
		return encode(reply)
	case err != nil:
		reply.Message = s.refused(r, "deployed", err)
		return encode(reply)
	}
	s.changed()
	reply.Result, reply.Version = wadm.ResultAcknowledged, &deployed.Version
	reply.Message = fmt.Sprintf("deployed %s %s", r.key.Name, shown(deployed.Version))
	return fitting(r.limit, inUse(deployed.Dependants), func(w []wadm.Warning) any {
		reply.Warnings = w
		return reply
	})
}

func (s *Server) undeploy(ctx context.Context, r *request) ([]byte, error) {
	actor, err := r.actor()
	if err == nil {
		err = r.object()
	}
	if err != nil {
		return nil, err
	}
	reply := wadm.DeployReply{Result: wadm.ResultError, Name: r.key.Name}
	was, err := patient(ctx, func() (store.Undeployed, error) {
		return s.Store.UndeployApplication(ctx, r.key, actor, s.Settings.ProtectShared)
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		reply.Result, reply.Message = wadm.ResultNotFound, unknown(r.key.Name, nil)
		return encode(reply)
	case err != nil:
		reply.Message = s.refused(r, "undeployed", err)
		return encode(reply)
	}
	reply.Result, reply.Message = wadm.ResultAcknowledged, r.key.Name+" was not deployed"
	if was.Was {
		s.changed()
		reply.Message = "undeployed " + r.key.Name
	}
	return fitting(r.limit, inUse(was.Dependants), func(w []wadm.Warning) any {
		reply.Warnings = w
		return reply
	})
}

func (s *Server) history(context.Context, *request) ([]byte, error) {
	return nil, refusal("a history of deployments is not supported; the stored versions are asked for with versions")
}

// change reads a request that changes what is stored: the version it is about,
// and who makes it.
func (r *request) change() (version *string, actor string, err error) {
	if version, err = r.version(); err == nil {
		actor, err = r.actor()
	}
	return version, actor, err
}

// refused is why something was not done to an application.
func (s *Server) refused(r *request, done string, err error) string {
	var used *store.InUse
	if errors.As(err, &used) {
		err = refusef("%s cannot be %s (conflict): deployed applications refer to shared components that would be gone: %s; undeploy those first",
			r.key.Name, done, enumerate(used.Dependants))
	}
	return cut(s.reason(r, err), maxMessage)
}

func (s *Server) changed() {
	if s.Changed != nil {
		s.Changed()
	}
}

// unknown says what is not there.
func unknown(name string, version *string) string {
	if version != nil {
		return fmt.Sprintf("there is no version %s of an application called %s", shown(*version), name)
	}
	return "there is no application called " + name
}

// inUse warns of the deployed applications that use what is not there any more.
func inUse(dependants []string) []wadm.Warning {
	if len(dependants) == 0 {
		return nil
	}
	return []wadm.Warning{{
		Rule:    ruleInUse,
		Message: "deployed applications refer to shared components that are not deployed any more: " + enumerate(dependants),
	}}
}

// ruleInUse is the rule of that warning.
const ruleInUse = "shared-in-use"
