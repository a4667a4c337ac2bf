// Package oam is the application document: the OAM manifest that wadm and wash
// speak, its decoding from YAML and JSON, its normal form, its rules, and the
// ids that follow from it. It is pure.
//
// # What is accepted
//
// Every document that wadm 0.21 accepts, read as wadm reads it, but for what
// cannot be executed or would hurt. Some details of that reading are surprising
// and deliberate:
//
//   - Keys that are not known are refused in a manifest, in the properties of
//     components and scalers, in configs, spreads and traits, and ignored
//     elsewhere.
//   - In YAML, numbers, booleans and null are read as written where a string is
//     wanted, except in properties of components and traits. In JSON a string is
//     a string.
//   - What unquoted YAML is follows YAML 1.2: yes, 010 and 1_000 are strings,
//     0x10 is a number. Merge keys (<<) are keys like any other.
//   - What a trait is follows from its properties: a link, else a scaler, else
//     something else that is kept and means nothing.
//   - A list of values in the order of the keys may stand for most objects.
//
// More is accepted than wadm does: annotations, labels, requirements and lists
// that are missing or null are empty; an empty image, id, link name or field of
// a secret is none; a byte order mark is skipped; a tag of one's own in YAML
// means nothing.
//
// Less is accepted only where it would hurt: a text is UTF-8 and within the
// limits everywhere, and no alias stands inside its anchor, even where keys are
// ignored; and the rules marked E* are not wadm's.
//
// # Rules
//
// In the order in which findings come; E is an error, W a warning. Those up to
// deprecated-link-config are wadm's, and its levels.
//
//	name                    E  metadata.name: 1 to 253 ASCII letters, digits, dashes, underscores
//	version-latest          E  the version annotation is not latest
//	label-key               E  keys of labels are names, after a DNS name and a slash if any
//	annotation-key          E  so are keys of annotations
//	duplicate-component     E  names of components are unique
//	duplicate-id            E  explicit ids are unique
//	link-target             E  targets of links are components; one finding lists all that are not
//	unknown-interface       W  packages and interfaces of wasi, wrpc and wasmcloud are known ones
//	dangling-link           W  the target of each link is a component
//	link-without-target     E  what is meant as a link, but is none, names a target
//	unknown-policy          E  secrets name policies of the manifest
//	policy-type             E  ... that are for secrets
//	policy-backend          E  ... and have a backend
//	link-properties         E  properties of a trait of type link are a link's
//	scaler-properties       E  properties of a spreadscaler or daemonscaler are a scaler's
//	image-or-application    E  a component has an image or an application, not both; an empty image is none
//	reference-config        E  a component of another application has no config here
//	reference-secrets       E  ... nor secrets
//	reference-scaler        E  ... nor a scaler
//	duplicate-link          E  a component links an interface once under each link name
//	duplicate-link-config   E  names of managed configs of links are unique
//	deprecated-link-config  W  links have source and target, not source_config and target_config
//	version                 E* a version is at most 253 bytes without control characters
//	reference-id            W  a component of another application has no id here
//	id-token                E* an explicit id can be a token of a NATS subject
//	id-collision            E* no two components run under one id
//	several-scalers         W  a component has one scaler
//	instances               E* at most 1,000,000 instances
//	weights                 E* not all weights of a scaler are 0
//	duplicate-spread        W  names of spreads are unique within a scaler
//	no-scaler               W  a component of type component has a scaler
//	api-version             W  apiVersion is core.oam.dev/v1beta1
//	kind                    W  kind is Application, or Manifest as the Go client writes
//	shared                  W  the annotation that shares an application is true or false
//	duplicate-policy        W  names of policies are unique
//	image-reference         W  an image is an OCI reference or a file:// address
//	no-interfaces           W  a link has interfaces
//	provider-link           W  one end of a link is of type component
//	link-overwritten        W  links from and to the same, of one name and package, are one link
//	trait-ignored           W  a trait has a type that means something, and its shape
//	config-conflict         W  managed configs kept under one name have the same properties
//	secret-conflict         W  so have secrets
//	duplicate-key           W  a map has each key once (in other objects a repeat is not read at all)
//	ignored-key             W  objects whose other keys are ignored have none
//	more-findings           W  there are at most 1,000 errors and 1,000 warnings
//
// Instances and weights beyond 32 bits are not read at all.
package oam
