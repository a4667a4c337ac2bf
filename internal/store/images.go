package store

import (
	"github.com/jackc/pgx/v5"

	"tidewait/internal/ledger"
)

// imagesSQL records, of a phase's open run, which images its machines had.
const imagesSQL = `
WITH open AS (SELECT id FROM topology_runs WHERE phase_id = $1 AND ended_at IS NULL),
agents AS (
    UPDATE run_agents a SET image = v.image FROM open, unnest($3::text[], $4::text[]) AS v (name, image)
    WHERE a.run_id = open.id AND a.name = v.name)
UPDATE topology_runs t SET image = $2 FROM open WHERE t.id = open.id AND $2 <> ''`

// queueImages goes before what ends the run.
func queueImages(b *pgx.Batch, phaseID int64, e ledger.RunEnd) {
	names, images := []string{}, []string{}
	for _, a := range e.Agents {
		if a.Info.Image != "" {
			names, images = append(names, a.Name), append(images, a.Info.Image)
		}
	}
	if e.Info.Image == "" && len(images) == 0 {
		return
	}
	image := e.Info.Image
	if len(e.Agents) > 0 {
		image = "" // each machine has its own
	}
	b.Queue(imagesSQL, phaseID, image, names, images)
}
