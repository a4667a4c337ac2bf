package wadmapi

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"tidewait/internal/ledger"
	"tidewait/internal/oam"
	"tidewait/internal/scaler"
	"tidewait/internal/store"
	"tidewait/internal/wadm"
)

// envelopeRoom is what a reply or an event may add to a manifest.
const envelopeRoom = 4096

// put stores a version. Checks are in wadm's order: what is first wrong is what
// is answered.
func (s *Server) put(ctx context.Context, r *request) ([]byte, error) {
	doc, err := r.document()
	if err != nil {
		return nil, err
	}
	actor, err := r.actor()
	if err != nil {
		return nil, err
	}
	manifest := doc.Manifest
	version, given := manifest.Metadata.Annotations[oam.AnnotationVersion]
	if err := oam.CheckVersion(version); err != nil {
		return nil, refusal(err.Error())
	}
	if err := oam.CheckName(strings.TrimSpace(manifest.Metadata.Name)); err != nil {
		return nil, refusal(err.Error())
	}
	findings := doc.Validate()
	if first, bad := oam.FirstError(findings); bad {
		return nil, refusal(sentence(first))
	}
	if !given {
		if version, err = s.versions.next(); err != nil {
			return nil, err
		}
		manifest = manifest.WithVersion(version)
	}
	return s.store(ctx, r, manifest, actor, warnings(findings))
}

// document reads the body of a put as its content type says. Only the two exact
// types are known, under the exact name of the header.
func (r *request) document() (*oam.Document, error) {
	format := oam.Detect
	if types, given := r.Header[wadm.HeaderContentType]; given && len(types) > 0 {
		switch types[0] {
		case wadm.ContentJSON:
			format = oam.JSON
		case wadm.ContentYAML:
			format = oam.YAML
		default:
			return nil, refusef("the manifest cannot be read: the content type %q is not supported: want %s, %s or none",
				cut(types[0], maxText), wadm.ContentJSON, wadm.ContentYAML)
		}
	}
	doc, err := oam.Parse(r.Data, format)
	if err != nil {
		return nil, refusef("the manifest cannot be read: %v", err)
	}
	return doc, nil
}

// store puts a valid manifest with its version into the database.
func (s *Server) store(ctx context.Context, r *request, m oam.Manifest, actor string, warnings []wadm.Warning) ([]byte, error) {
	normal, err := m.JSON()
	if err != nil {
		return nil, err
	}
	if size := len(normal) + envelopeRoom; size > r.limit {
		return nil, refusal(tooLarge("the manifest in a reply or an event", size, r.limit))
	}
	facts := m.Facts()
	missing, err := patient(ctx, func() ([]oam.Reference, error) {
		return s.Store.MissingShared(ctx, r.key.Account, r.key.Lattice, facts.References)
	})
	if err != nil {
		return nil, err
	}
	r.key.Name = m.Metadata.Name
	version := ledger.AppVersion{
		Version: m.Version(), Description: m.Description(), Manifest: normal, Scalers: scaler.Rows(m), Facts: facts,
		PutBy: actor,
	}
	putID := uuid.New()
	total, err := patient(ctx, func() (int, error) { return s.Store.PutApplication(ctx, r.key, version, putID) })
	if errors.Is(err, store.ErrVersionExists) {
		return nil, refusef("version %s of %s already exists (conflict); put it with another version", shown(version.Version), r.key.Name)
	}
	if err != nil {
		return nil, err
	}
	reply := wadm.PutReply{
		Result: wadm.ResultNewVersion, TotalVersions: total, CurrentVersion: version.Version,
		Message: cut(storedMessage(r.key.Name, version.Version, missing), maxMessage), Name: r.key.Name,
	}
	if total == 1 {
		reply.Result = wadm.ResultCreated
	}
	return fitting(r.limit, warnings, func(w []wadm.Warning) any {
		reply.Warnings = w
		return reply
	})
}

func storedMessage(name, version string, missing []oam.Reference) string {
	message := fmt.Sprintf("stored %s %s", name, shown(version))
	if len(missing) > 0 {
		message += "; it cannot be deployed before these shared components are: " + enumerate(named(missing))
	}
	return message
}

// warnings are the findings that do not keep a manifest from being stored.
func warnings(findings []oam.Finding) []wadm.Warning {
	var list []wadm.Warning
	for _, f := range findings {
		list = append(list, wadm.Warning{Rule: f.Rule, Path: f.Path, Line: f.Line, Message: f.Message})
	}
	return list
}

// sentence is a finding where it stands.
func sentence(f oam.Finding) string {
	return (&oam.ParseError{Line: f.Line, Column: f.Column, Path: f.Path, Message: f.Message}).Error()
}

// shown is a version in a message: one that could be overlooked is quoted.
func shown(version string) string {
	if version == "" || strings.TrimSpace(version) != version {
		return strconv.Quote(version)
	}
	return version
}

// named names references.
func named(references []oam.Reference) []string {
	names := make([]string, len(references))
	for i, ref := range references {
		names[i] = fmt.Sprintf("%s %s of %s", ref.Type, ref.Component, ref.Application)
	}
	return names
}
