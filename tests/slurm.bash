# For tests of Slurm: slurm_start NODES, in setup_file, starts a cluster of this machine alone, in $BATS_FILE_TMPDIR/slurm: munged, slurmctld, and a
# slurmd for each node, which has a host name of its own. need_slurm, in setup, skips the tests, saying why, where that was not possible (bats takes a
# skip in setup_file for a failure). slurm_stop, in teardown_file, ends them. The commands of Slurm find the cluster by SLURM_CONF.

# slurm_conf FOLDER NODES: its configuration. select/linear gives a job as many nodes as are free, up to what it asks for; PMIx has files in TmpFS.
slurm_conf() {
    cat << END
ClusterName=llmutils
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmctldPort=$((port))
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$1/munge/socket
CredType=cred/munge
StateSaveLocation=$1/state
SlurmctldPidFile=$1/slurmctld.pid
SlurmctldLogFile=$1/slurmctld.log
SlurmdPidFile=$1/slurmd-%n.pid
SlurmdLogFile=$1/slurmd-%n.log
SlurmdSpoolDir=$1/spool-%n
SlurmdParameters=config_overrides
TmpFS=$1/tmp-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
NodeName=n[1-$2] NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + $2))] CPUs=2 RealMemory=1000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE PriorityTier=1 GraceTime=60 State=UP
PartitionName=urgent Nodes=ALL PriorityTier=2 State=UP
END
}

no_slurm() {
    echo "$1" > "$BATS_FILE_TMPDIR/no_slurm"
}

need_slurm() {
    [[ ! -e $BATS_FILE_TMPDIR/no_slurm ]] || skip "$(< "$BATS_FILE_TMPDIR/no_slurm")"
}

slurm_start() {
    local s=$BATS_FILE_TMPDIR/slurm nodes=$1 i tool port=$((20000 + RANDOM % 10000))
    for tool in sbatch srun scontrol sinfo slurmctld slurmd munged unshare; do
        command -v $tool > /dev/null || { no_slurm "$tool is not installed" && return; }
    done
    [[ $(find /usr/lib* -path '*slurm*' -name mpi_pmix.so -print -quit) ]] || { no_slurm "Slurm has no PMIx" && return; }
    unshare -u true 2> /dev/null || { no_slurm "host names of nodes need the rights of root" && return; }
    mkdir -p "$s/munge" "$s/state"
    chmod 700 "$s/munge"
    head -c 128 /dev/urandom > "$s/munge/key"
    chmod 400 "$s/munge/key"
    slurm_conf "$s" "$nodes" > "$s/slurm.conf"
    export SLURM_CONF=$s/slurm.conf
    munged --force --socket="$s/munge/socket" --key-file="$s/munge/key" --log-file="$s/munge/log" --pid-file="$s/munge/pid" \
        --seed-file="$s/munge/seed" 3>&- 2> "$s/err" || { no_slurm "munged does not start: $(tail -n 1 "$s/err")" && return; }
    slurmctld -c 3>&- 2> "$s/err" || { no_slurm "slurmctld does not start: $(tail -n 1 "$s/err")" && return; }
    for ((i = 1; i <= nodes; i++)); do
        mkdir -p "$s/spool-n$i" "$s/tmp-n$i"
        unshare -u sh -c "hostname n$i && exec slurmd -N n$i" 3>&- 2> "$s/err" ||
            { no_slurm "slurmd does not start: $(tail -n 1 "$s/err")" && return; }
    done
    for ((i = 0; i < 300; i++)); do
        [[ $(sinfo -h -p main -t idle -o %D 2> /dev/null) != "$nodes" ]] || return 0
        sleep .1
    done
    no_slurm "Slurm's nodes do not come up: $(tail -n 1 "$s/slurmctld.log")"
}

slurm_stop() {
    local s=$BATS_FILE_TMPDIR/slurm pid
    for pid in "$s"/slurmd-*.pid "$s"/slurmctld.pid "$s"/munge/pid; do
        while [[ -s $pid ]] && kill "$(< "$pid")" 2> /dev/null; do sleep .2; done
    done
}

# job_is ID STATE: job ID has come to STATE (PENDING, RUNNING, COMPLETED, ...).
job_is() {
    [[ $(scontrol show job "$1" 2> /dev/null) == *"JobState=$2 "* ]]
}

# comes N COMMAND...: COMMAND succeeds within N seconds.
comes() {
    local i
    for ((i = 0; i < 5 * $1; i++)); do
        if "${@:2}"; then return 0; fi
        sleep .2
    done
    return 1
}
