#!/bin/sh
# Makes the namespace and Holdfast's search attributes. Harmless when they are there.
set -eu

patiently() { # COMMAND...: again until it succeeds, for two minutes: a new namespace takes a while to be known
    left=60
    until "$@"; do
        left=$((left - 1))
        if [ "$left" -le 0 ]; then
            echo "Gave up: $*" >&2
            exit 1
        fi
        sleep 2
    done
}

there() { temporal operator namespace describe --namespace "$TEMPORAL_NAMESPACE" >/dev/null 2>&1; }
namespace() { there || temporal operator namespace create --namespace "$TEMPORAL_NAMESPACE" --retention "$RETENTION"; }
attributes() {
    temporal operator search-attribute create --namespace "$TEMPORAL_NAMESPACE" \
        --name HoldfastState --type Keyword \
        --name HoldfastTools --type KeywordList \
        --name HoldfastDeadline --type Datetime
}

patiently temporal operator cluster health
patiently namespace
patiently attributes
echo "Namespace $TEMPORAL_NAMESPACE is ready."
