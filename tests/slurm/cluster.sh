#!/usr/bin/env bash
# A Slurm of two nodes on this machine, for tests: a CPU node and a GPU node with three fake GPUs. No systemd, no accounting.
# Usage, as root: cluster.sh start FOLDER | cluster.sh stop FOLDER. Packages (Debian): slurm-wlm, munge.
# Exit status 2: this machine already runs a Slurm, which is left alone.
set -euo pipefail

command=${1:?start or stop} folder=$(realpath -m "${2:?folder of the cluster}")
host=$(hostname -s)
controller_port=${SLURM_TEST_PORT:-16817}
# A job step drops SLURM_CONF from its environment, so the configuration has to lie where Slurm looks by itself.
system=/etc/slurm
files=(slurm.conf gres.conf cgroup.conf)

# Process id of a daemon that this script started in a folder; fails if it does not run (any more).
running() {
  local pid
  pid=$(cat "$1/run/$2.pid" 2> /dev/null) && [[ $(ps -o comm= -p "$pid") == "${2%%.*}" ]] && echo "$pid"
}

stop() {
  if running "$folder" slurmctld > /dev/null; then
    # Jobs outlive the daemons. They end first; one that ignores SIGTERM is killed after KillWait.
    timeout 10 squeue --noheader --format=%A | xargs --no-run-if-empty timeout 10 scancel || true
    for _ in $(seq 60); do [[ $(timeout 10 squeue --noheader --states=all --format=%T | grep -cE 'RUNNING|COMPLETING') == 0 ]] && break; sleep 0.25; done
  fi
  for daemon in slurmd.cpu1 slurmd.gpu1 slurmctld munged; do
    if pid=$(running "$folder" "$daemon"); then
      kill "$pid"
      for _ in $(seq 40); do running "$folder" "$daemon" > /dev/null || break; sleep 0.25; done
    fi
  done
  for file in "${files[@]}"; do
    [[ $(readlink "$system/$file") == "$folder/$file" ]] && rm "$system/$file"
  done
  return 0
}

start() {
  for file in "${files[@]}"; do
    if [[ -e $system/$file && ! -L $system/$file ]]; then
      echo "error: $system/$file exists: this machine has a Slurm of its own" >&2
      exit 2
    fi
    if other=$(readlink "$system/$file") && running "$(dirname "$other")" slurmctld > /dev/null; then
      echo "error: another test cluster runs from $(dirname "$other")" >&2
      exit 2
    fi
  done
  mkdir -p "$folder"/{log,run,state,spool.cpu1,spool.gpu1} "$system"
  trap 'tail -n 20 "$folder"/log/*.log >&2; stop' ERR

  (umask 077; head -c 1024 /dev/urandom > "$folder/munge.key")
  # --force: the folder may lie below one that others can write to, such as /tmp.
  munged --force --key-file="$folder/munge.key" --socket="$folder/run/munge.socket" \
    --pid-file="$folder/run/munged.pid" --seed-file="$folder/run/munge.seed" --log-file="$folder/log/munged.log"

  # cred_expire is also how long a requeued job waits before it starts again (default: 120 s).
  # config_overrides: a node may claim more CPUs and memory than the machine has.
  # linuxproc, task/none and cgroup/v1 touch no control group: inside a container they are read-only.
  cat > "$folder/slurm.conf" << CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$controller_port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/run/munge.socket,cred_expire=10
CredType=cred/munge
SlurmctldPidFile=$folder/run/slurmctld.pid
SlurmdPidFile=$folder/run/slurmd.%n.pid
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdLogFile=$folder/log/slurmd.%n.log
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool.%n
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
KillWait=5
MinJobAge=3600
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
GresTypes=gpu
NodeName=cpu1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((controller_port + 1)) CPUs=16 RealMemory=32000
NodeName=gpu1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((controller_port + 2)) CPUs=16 RealMemory=32000 Gres=gpu:3
PartitionName=cpu Nodes=cpu1 Default=YES MaxTime=60
PartitionName=gpu Nodes=gpu1 MaxTime=60 PriorityTier=1
PartitionName=urgent Nodes=gpu1 MaxTime=60 PriorityTier=2
CONF
  # Slurm takes any character device for a GPU.
  echo 'NodeName=gpu1 Name=gpu File=/dev/null,/dev/zero,/dev/full' > "$folder/gres.conf"
  echo 'CgroupPlugin=cgroup/v1' > "$folder/cgroup.conf"
  for file in "${files[@]}"; do ln -sfn "$folder/$file" "$system/$file"; done

  slurmctld
  slurmd -N cpu1
  slurmd -N gpu1
  for _ in $(seq 60); do
    [[ $(timeout 10 sinfo --noheader --Node --states=idle --format=%N | sort -u | wc -l) == 2 ]] && return 0
    sleep 0.25
  done
  echo "error: the nodes did not come up" >&2
  false
}

case $command in
  start | stop) "$command" ;;
  *) echo "error: $command: allowed are start and stop" >&2; exit 1 ;;
esac
