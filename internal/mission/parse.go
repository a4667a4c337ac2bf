package mission

import (
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// Parse reads one mission document, in YAML or JSON, fills in every default and
// checks every rule that the document alone can break. Name is the file's name,
// for the messages. The error is an [*Invalid] with everything that is wrong.
func Parse(name string, src []byte) (Mission, error) {
	r := &reader{file: name}
	var m Mission
	if root := r.load(src); root != nil {
		m = r.mission(value{follow(root), ""})
	}
	if len(r.findings) > 0 {
		return Mission{}, &Invalid{Findings: inOrder(r.findings)}
	}
	return m, nil
}

func (r *reader) mission(v value) Mission {
	var m Mission
	for name, field := range r.object(v, documentShape) {
		switch name {
		case "apiVersion":
			r.oneOf(field, APIVersion)
		case "kind":
			r.oneOf(field, Kind)
		case "metadata":
			m.Name, m.Labels = r.metadata(field)
		case "spec":
			m.Spec = r.spec(field)
		}
	}
	return m
}

func (r *reader) metadata(v value) (name string, labels map[string]string) {
	fields := r.object(v, metadataShape)
	if field, ok := fields["name"]; ok {
		name = r.name(field)
	}
	if field, ok := fields["labels"]; ok {
		labels = r.labels(field)
	}
	return name, labels
}

func (r *reader) spec(v value) Spec {
	var spec Spec
	for name, field := range r.object(v, specShape) {
		switch name {
		case "backend":
			spec.Backend = r.oneOf(field, "microvm", "process")
		case "workspace":
			spec.Workspace = r.workspace(field)
		case "turn":
			spec.Turn = r.duration(field)
		case "maxWait":
			spec.MaxWait = r.duration(field)
		case "priority":
			priority := r.whole(field, 0, 100)
			spec.Priority = &priority
		case "phases":
			spec.Phases = r.phases(field)
		}
	}
	r.imagesFor(spec.Backend)
	return spec
}

func (r *reader) workspace(v value) Workspace {
	const choose = "write git: REPOSITORY or path: DIRECTORY"
	var w Workspace
	fields := r.object(v, workspaceShape)
	if fields == nil {
		return w
	}
	git, hasGit := fields["git"]
	path, hasPath := fields["path"]
	ref, hasRef := fields["ref"]
	switch {
	case hasGit && hasPath:
		r.about(path, `"path"`, "cannot stand beside git", "keep one of them")
	case !hasGit && !hasPath:
		r.about(v, "the workspace", "has no source", choose)
	case hasPath && hasRef:
		r.about(ref, `"ref"`, "cannot stand beside path", "a ref is of a git repository")
	}
	if hasGit {
		w.Git, w.Ref = r.git(git), "HEAD"
	}
	if hasRef {
		w.Ref = r.checked(ref, CheckRef, "write a branch, a tag or a full commit id")
	}
	if hasPath {
		w.Path = r.checked(path, checkDirectory, "write a directory, for example ./files")
	}
	return w
}

func (r *reader) git(v value) string {
	text, ok := r.text(v)
	if problem := CheckGit(text); ok && problem != "" {
		r.about(v, quote(RedactGit(text)), problem,
			"write a directory such as ./repo or a URL such as https://example.org/repo.git; credentials belong to the gateway's git configuration")
	}
	return text
}

func checkDirectory(path string) string {
	switch {
	case path == "":
		return "is empty"
	case len(path) > 4096:
		return "is longer than 4096 bytes"
	}
	return ""
}

// checked reads a string that a rule may refuse.
func (r *reader) checked(v value, rule func(string) string, hint string) string {
	text, ok := r.text(v)
	if problem := rule(text); ok && problem != "" {
		r.refuse(v, problem, hint)
	}
	return text
}

func (r *reader) phases(v value) []Phase {
	const maxPhases = 100
	items, ok := r.list(v, "write a list of phases, each with - name:")
	if !ok {
		return nil
	}
	switch {
	case len(items) == 0:
		r.about(v, "the list", "is empty", "write one or more phases")
	case len(items) > maxPhases:
		r.about(v, "the list", "has "+strconv.Itoa(len(items))+" phases", "write at most "+strconv.Itoa(maxPhases))
		return nil
	}
	phases := make([]Phase, len(items))
	lines := map[string]int{}
	for i, item := range items {
		phases[i] = r.phase(item)
		name := phases[i].Name
		if first, twice := lines[name]; twice && name != "" {
			r.about(value{item.Node, item.key + ".name"}, quote(name), "is the name of two phases, first on line "+strconv.Itoa(first), "give each phase its own name")
			continue
		}
		lines[name] = item.Line
	}
	return phases
}

func (r *reader) phase(v value) Phase {
	phase := Phase{Image: DefaultImage, Attempts: 1, Resources: Resources{CPUMilli: 1000, MemoryMiB: 512, DiskMiB: 1024}}
	fields := r.object(v, phaseShape)
	for name, field := range fields {
		switch name {
		case "name":
			phase.Name = r.name(field)
		case "resources":
			phase.Resources = r.resources(field, phase.Resources)
		case "requires":
			phase.Requires = r.requires(field)
		case "image":
			phase.Image = r.image(field)
		case "run":
			phase.Run = r.run(field)
		case "env":
			phase.Env = r.env(field)
		case "collect":
			phase.Collect = r.collect(field)
		case "attempts":
			phase.Attempts = r.whole(field, 1, 10)
		case "hold":
			phase.Hold = r.hold(field)
		}
	}
	if field, ok := fields["secrets"]; ok {
		phase.Secrets = r.secrets(field, phase.Env)
	}
	return r.composed(phase, fields)
}

// hold reads true or false, or what there is to say of a hold.
func (r *reader) hold(v value) *Hold {
	if v.Kind == yaml.ScalarNode && v.ShortTag() == "!!bool" {
		if held, err := strconv.ParseBool(v.Value); err == nil {
			if held {
				return &Hold{}
			}
			return nil
		}
	}
	if v.Kind != yaml.MappingNode {
		r.refuse(v, "is not allowed", "write true, or for example {reason: look at the survey first, maxWait: 24h}")
		return nil
	}
	hold := &Hold{}
	for name, field := range r.object(v, holdShape) {
		switch name {
		case "reason":
			hold.Reason = r.checked(field, checkReason, "write one short sentence, for example: look at the survey first")
		case "maxWait":
			hold.MaxWait = r.duration(field)
		}
	}
	return hold
}

func checkReason(text string) string {
	switch {
	case strings.TrimSpace(text) == "":
		return "is empty"
	case len(text) > 400:
		return "is longer than 400 bytes"
	case strings.ContainsFunc(text, unicode.IsControl):
		return "contains a control character"
	}
	return ""
}

func (r *reader) resources(v value, amounts Resources) Resources {
	for name, field := range r.object(v, resourcesShape) {
		switch name {
		case "cpus":
			amounts.CPUMilli = r.cpus(field)
		case "memory":
			amounts.MemoryMiB = r.size(field, minMemoryMiB, maxMemoryMiB)
		case "disk":
			amounts.DiskMiB = r.size(field, minDiskMiB, maxDiskMiB)
		}
	}
	return amounts
}

func (r *reader) requires(v value) Requires {
	var requires Requires
	for name, field := range r.object(v, requiresShape) {
		switch name {
		case "arch":
			requires.Arch = r.oneOf(field, "amd64", "arm64")
		case "labels":
			requires.Labels = r.labels(field)
		}
	}
	return requires
}

func (r *reader) run(v value) []string {
	items, ok := r.list(v, runHint)
	if ok && len(items) == 0 {
		r.about(v, "the list", "is empty", runHint)
	}
	var run []string
	for i, item := range items {
		text, ok := r.text(item)
		switch {
		case ok && i == 0 && text == "":
			r.refuse(item, "is no command", runHint)
		case ok:
			r.argument(item, text)
		}
		run = append(run, text)
	}
	return run
}

func (r *reader) collect(v value) []string {
	items, _ := r.list(v, `write a list of globs, for example ["out/**"]`)
	var globs []string
	for _, item := range items {
		globs = append(globs, r.checked(item, CheckGlob, "write a relative glob, for example out/** or *.txt"))
	}
	return globs
}
