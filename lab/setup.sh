#!/usr/bin/env bash
# Builds the virtualenv, and names or installs the Debian packages that the namespaced lab needs.
#   lab/setup.sh venv PYTHON DIRECTORY
#   lab/setup.sh client PYTHON DIRECTORY     StackStorm's client, whose parser tests ask
#   lab/setup.sh peers DIRECTORY     what benchmarks compare with, into that virtualenv
#   lab/setup.sh packages [machines]   installs with YES=1 or CI set, asks otherwise; machines: theirs, too
set -euo pipefail
cd "$(dirname "$0")/.."

say() {
  echo "setup: $*"
}

install_requirements() {
  local place=$1 file
  shift
  for file; do
    say "installing from $file: $(sed -E '/^#/d; s/[<>=;].*//' "$file" | sort -u | paste -sd ' ')"
  done
  "$place/bin/pip" install --quiet --disable-pip-version-check "${@/#/--requirement=}"
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
  "$python" -m venv --clear "$place"
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
  say "$place is ready after $SECONDS s"
}

build_client() {
  # It holds versions that the environment of the pack cannot have.
  say "making the virtualenv $2"
  "$1" -m venv --clear "$2"
  install_requirements "$2" requirements-client.txt
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
  for program in redis-server sudo; do # for the tests
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
  venv) build_venv "$2" "$3" ;;
  client) build_client "$2" "$3" ;;
  peers) install_requirements "$2" requirements-bench.txt ;;
  packages) offer_packages "${2:-}" ;;
  *) echo "usage: lab/setup.sh venv PYTHON DIRECTORY | client PYTHON DIRECTORY | peers DIRECTORY | packages [machines]" >&2; exit 2 ;;
esac
