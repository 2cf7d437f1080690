#!/usr/bin/env bash
# Builds the virtualenv, and names or installs the Debian packages that the namespaced lab needs.
#   lab/setup.sh machine     one line for what no test and no lab can work with
#   lab/setup.sh venv PYTHON DIRECTORY
#   lab/setup.sh client PYTHON DIRECTORY     StackStorm's client, whose parser tests ask
#   lab/setup.sh peers DIRECTORY     what benchmarks compare with, into that virtualenv
#   lab/setup.sh mutmut DIRECTORY    what makes mistakes by room, into that virtualenv
#   lab/setup.sh packages [machines]   installs with YES=1 or CI set, asks otherwise; machines: theirs, too
set -euo pipefail
cd "$(dirname "$0")/.."

say() {
  echo "setup: $*"
}

fail() {
  echo "setup: $*" >&2
  exit 1
}

ROOM=524288 # KiB that the tests write below the folder for temporary files, twice over

check_machine() {
  local zone=${TZ:-} temporary=${TMPDIR:-/tmp} free
  zone=${zone#:}
  # The C library takes a zone that it does not know for UTC, and says nothing.
  if [ -n "$zone" ] && ! [[ $zone =~ ^(<[A-Za-z0-9+-]+>|[A-Za-z]{3,})[+-]?[0-9] ]] &&
    ! [ -f "${TZDIR:-/usr/share/zoneinfo}/$zone" ] && ! [[ $zone == /* && -f $zone ]]; then
    fail "TZ=$TZ: this machine knows no such time zone; name another, or install tzdata"
  fi
  [ -d "$temporary" ] && [ -w "$temporary" ] ||
    fail "TMPDIR=$temporary: no folder that $(id -un) may write to"
  free=$(df -Pk "$temporary" | awk 'NR == 2 { print $4 }')
  [ "$free" -ge $ROOM ] ||
    fail "$temporary has $((free / 1024)) MiB left and $((ROOM / 1024)) are needed; name another folder by TMPDIR"
}

make_venv() {
  local said
  said=$("$1" -m venv --clear "$2" 2>&1) || fail "no virtualenv in $2: $(tail -n 1 <<<"$said")"
}

install_requirements() {
  local place=$1 file said
  shift
  for file; do
    say "installing from $file: $(sed -E '/^#/d; s/[<>=;].*//' "$file" | sort -u | paste -sd ' ')"
  done
  # Not compiled: of thousands of modules a few hundred are ever imported, and compiled then.
  if ! said=$(PIP_RETRIES=${PIP_RETRIES:-2} "$place/bin/pip" install --quiet --no-compile --disable-pip-version-check \
    "${@/#/--requirement=}" 2>&1); then
    # Without a network pip says that there is no such version.
    ! grep -q "connection broken" <<<"$said" || fail "pip does not reach its package index"
    fail "pip could not install them: $(grep -m 1 '^ERROR' <<<"$said" || tail -n 1 <<<"$said")"
  fi
}

# A virtualenv that holds half of its packages is none.
keep_when_whole() {
  local place=$1
  # shellcheck disable=SC2064
  trap "rm -rf '$place'; say '$place is taken away: it was not whole' >&2" EXIT
}

build_venv() {
  local python=$1 place=$2
  "$python" - <<'CHECK'
import sys
if not (3, 9) <= sys.version_info[:2] <= (3, 12):
    sys.exit("edgetune needs Python 3.9 to 3.12, this is %d.%d; give another with PYTHON=" % sys.version_info[:2])
CHECK
  say "making the virtualenv $place with $("$python" --version) ($(command -v "$python"))"
  # Debian keeps ensurepip in a package of its own.
  if ! "$python" -c "import ensurepip, venv" 2>/dev/null; then
    if [ "$(id -u)" != 0 ] || [ -z "${YES:-}${CI:-}" ]; then
      echo "This Python makes no virtualenvs: install python3-venv, or run as root with YES=1." >&2
      exit 1
    fi
    install_packages python3-venv
  fi
  keep_when_whole "$place"
  make_venv "$python" "$place"
  install_requirements "$place" requirements.txt requirements-tests.txt
  say "writing the command $place/bin/edgetune"
  "$place/bin/python" - <<'LINK'
import sysconfig, pathlib
here = pathlib.Path.cwd()
pathlib.Path(sysconfig.get_path("purelib"), "edgetune.pth").write_text(f"{here / 'lib'}\n{here}\n")
LINK
  cat >"$place/bin/edgetune" <<COMMAND
#!/bin/sh
exec "\$(dirname "\$0")/python" -m lab.cli "\$@"
COMMAND
  chmod +x "$place/bin/edgetune"
  trap - EXIT
  say "$place is ready after $SECONDS s"
}

build_client() {
  # It holds versions that the environment of the pack cannot have.
  say "making the virtualenv $2"
  keep_when_whole "$2"
  make_venv "$1" "$2"
  install_requirements "$2" requirements-client.txt
  trap - EXIT
  say "$2 is ready after $SECONDS s"
}

install_packages() {
  # Packages of daemons start them on installing; while this policy stands they do not.
  local policy=/usr/sbin/policy-rc.d
  if [ ! -e $policy ]; then
    trap "rm -f $policy" EXIT
    printf '#!/bin/sh\nexit 101\n' >$policy
    chmod +x $policy
  fi
  say "installing Debian packages: $*"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

offer_packages() {
  local missing answer program machines=False
  [ "${1:-}" != machines ] || machines=True
  missing=$(.venv/bin/python -c "from lab.pop import missing_packages; print(*missing_packages(True, $machines, True))")
  for program in redis-server sudo faketime; do # for the tests
    PATH=$PATH:/usr/sbin command -v $program >/dev/null || missing="$missing $program"
  done
  [ -n "$missing" ] || return 0
  echo "The lab of real Linux hosts needs these packages: $missing"
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "Install them (as root, on Debian) for it; the simulated lab is used until then."
    return 0
  fi
  if [ -z "${YES:-}${CI:-}" ]; then
    if ! [ -t 0 ]; then
      echo "Run again with YES=1 to install them; the simulated lab is used until then."
      return 0
    fi
    read -r -p "Install them now, without starting any service? [y/N] " answer
    case $answer in [yY]*) ;; *) return 0 ;; esac
  fi
  # shellcheck disable=SC2086
  install_packages $missing
}

case ${1:-} in
  machine) check_machine ;;
  venv) build_venv "$2" "$3" ;;
  client) build_client "$2" "$3" ;;
  peers) install_requirements "$2" requirements-bench.txt ;;
  mutmut) install_requirements "$2" requirements-mutants.txt ;;
  packages) offer_packages "${2:-}" ;;
  *) echo "usage: lab/setup.sh machine | venv PYTHON DIRECTORY | client PYTHON DIRECTORY | peers DIRECTORY | mutmut DIRECTORY | packages [machines]" >&2; exit 2 ;;
esac
