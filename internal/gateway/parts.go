package gateway

import (
	"context"
	"io"
	"time"

	"tidewait/internal/workspace"
	"tidewait/workflows"
)

// parts are the results of the machines of one run, open to be read in turn.
type parts struct {
	list   []workspace.Part
	open   []io.Closer
	latest time.Time // when the last of them was stored
}

func (p *parts) close() {
	for _, obj := range p.open {
		_ = obj.Close()
	}
}

// parts opens the results of a run. They are to be closed, also after an error.
func (g *Gateway) parts(ctx context.Context, in workflows.CommitResultsInput) (*parts, error) {
	wanted := in.Parts
	if len(wanted) == 0 {
		wanted = []workflows.ResultsPart{{Results: in.Results, Deleted: in.Deleted}}
	}
	p := &parts{}
	for _, part := range wanted {
		obj, info, err := g.get(ctx, part.Results)
		if err != nil {
			return p, err
		}
		p.open = append(p.open, obj)
		if info.ModTime.After(p.latest) {
			p.latest = info.ModTime
		}
		p.list = append(p.list, workspace.Part{Agent: part.Agent, Tar: obj, SHA256: part.Results.SHA256, Deleted: part.Deleted})
	}
	return p, nil
}
