package agent

import (
	"context"
	"maps"
	"slices"

	"tidewait/internal/vm"
	"tidewait/internal/vm/rootfs"
	"tidewait/workflows"
)

// roots are the root file systems that a run uses, by the names of their images.
type roots map[string]*rootfs.Root

// digests are what the names lead to.
func (r roots) digests() map[string]string {
	if len(r) == 0 {
		return nil
	}
	digests := map[string]string{}
	for name, root := range r {
		digests[name] = root.Digest
	}
	return digests
}

func (r roots) close() {
	for _, root := range r {
		root.Close()
	}
}

// imagesOf are the names of the images that a run needs, each once.
func imagesOf(in workflows.ExecuteRunInput) []string {
	names := []string{in.Machine.Image}
	for _, a := range in.Agents {
		names = append(names, a.Machine.Image)
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" })
}

// pull gets the images of a run, which are its own until it ends, and puts them
// into its machines. tell is called when there is something to get.
func (a *Agent) pull(ctx context.Context, r *run, in *workflows.ExecuteRunInput, tell func(step string)) error {
	names := imagesOf(*in)
	if len(names) == 0 {
		return nil
	}
	if a.Images == nil {
		return &vm.Failure{Code: vm.ImageUnavailable, Message: "this node keeps no images"}
	}
	tell("pull")
	a.hurry()
	r.roots = roots{}
	for _, name := range names {
		root, err := a.Images.Get(ctx, name, in.Images[name])
		if err != nil {
			return orCause(ctx, err)
		}
		root.Name = name
		if !isPinned(name, root.Digest) {
			root.Name += "@" + root.Digest
		}
		r.roots[name] = root
	}
	in.Command.Env = r.furnish(&in.Machine, in.Command.Env)
	in.Agents = slices.Clone(in.Agents)
	for i := range in.Agents {
		agent := &in.Agents[i]
		agent.Command.Env = r.furnish(&agent.Machine, agent.Command.Env)
	}
	return nil
}

// isPinned reports whether a name ends with a digest already.
func isPinned(name, digest string) bool {
	return len(name) > len(digest) && name[len(name)-len(digest)-1:] == "@"+digest
}

// furnish gives a machine its root directory. It returns the variables of its
// command: those of the image, and over them the command's own.
func (r *run) furnish(m *vm.Spec, env map[string]string) map[string]string {
	root := r.roots[m.Image]
	if root == nil {
		return env
	}
	m.Root = &root.Root
	all := maps.Clone(root.Env)
	if all == nil {
		return env
	}
	maps.Copy(all, env)
	return all
}

// withoutImages is the result of a run that did not get its images.
func (a *Agent) withoutImages(turn context.Context, in workflows.ExecuteRunInput, r *run, err error) workflows.ExecuteRunResult {
	return failed(workflows.ExecuteRunResult{}, vm.ImageUnavailable, (&execution{agent: a, in: in, run: r}).orTurn(turn, err))
}
