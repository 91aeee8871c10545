# What a script with #SBATCH lines finds beside what is known at submission: see slurm_prologue.py.
unset FAIRLEAD_PROLOGUE
export SLURM_JOB_ID=$FAIRLEAD_JOB
if [ -n "$SLURM_ARRAY_TASK_COUNT" ]; then  # as in Slurm each task has a number of its own: files and folders have it as name
  export SLURM_ARRAY_JOB_ID=$FAIRLEAD_JOB SLURM_ARRAY_TASK_ID=$FAIRLEAD_INDEX
  SLURM_JOB_ID=$((FAIRLEAD_JOB * 10000000 + FAIRLEAD_INDEX))
fi
SLURM_CPUS_ON_NODE=${FAIRLEAD_CPU%.*}
[ "${SLURM_CPUS_ON_NODE:-0}" -gt 0 ] || SLURM_CPUS_ON_NODE=1
SLURM_CPUS_PER_TASK=$((SLURM_CPUS_ON_NODE * SLURM_NNODES / SLURM_NTASKS))
[ "$SLURM_CPUS_PER_TASK" -gt 0 ] || SLURM_CPUS_PER_TASK=1
SLURM_MEM_PER_NODE=$((${FAIRLEAD_MEMORY:-0} / 1048576)) SLURMD_NODENAME=$(uname -n) SLURM_JOB_USER=$(id -un)
[ "$FAIRLEAD_NUMBER" = 1 ] || export SLURM_RESTART_COUNT=$((FAIRLEAD_NUMBER - 1))
export SLURM_CPUS_ON_NODE SLURM_CPUS_PER_TASK SLURM_MEM_PER_NODE SLURMD_NODENAME SLURM_JOB_USER SLURM_TASK_PID=$$
export SLURM_JOBID=$SLURM_JOB_ID SLURM_JOB_NODELIST=${FAIRLEAD_HOSTS:-$SLURMD_NODENAME}
export SLURM_NODELIST=$SLURM_JOB_NODELIST SLURM_NODEID=${FAIRLEAD_RANK:-0} SLURM_PROCID=${FAIRLEAD_RANK:-0}
export SLURM_JOB_CPUS_PER_NODE=$SLURM_CPUS_ON_NODE SLURM_JOB_GPUS=$CUDA_VISIBLE_DEVICES
command -v srun > /dev/null || srun() {  # one process, in place; options that place or report processes have no effect
  local n=$SLURM_NTASKS
  while [ $# -gt 0 ]; do
    case $1 in
      --) shift; break ;;
      -n | --ntasks) n=$2; shift 2 ;;
      -n*) n=${1#-n}; shift ;;
      --ntasks=*) n=${1#*=}; shift ;;
      -[NcpAtJGKmw] | --nodes | --cpus-per-task | --mem | --gres | --gpus | --time | --partition | --job-name) shift 2 ;;
      -[NcpAtJGKmwluvQ]* | --nodes=* | --ntasks-per-*=* | --cpus-per-*=* | --mem*=* | --gres*=* | --gpu*=* | --time=*) shift ;;
      --account=* | --partition=* | --job-name=* | --mpi=* | --cpu[-_]bind=* | --hint=* | --distribution=*) shift ;;
      --kill-on-bad-exit* | --export=ALL | --exclusive | --exact | --overlap | --unbuffered | --label | --quiet | --pty) shift ;;
      -*) echo "fairlead: srun $1: has no equivalent here: omit it" >&2; return 2 ;;
      *) break ;;
    esac
  done
  [ "$n" -le "$SLURM_NNODES" ] && { "$@"; return; }  # of several nodes each runs the script
  echo "fairlead: srun: starts one process, not $n: use mpirun -n $n, or torchrun --nproc-per-node $n" >&2
  return 2
}
command -v scontrol > /dev/null || scontrol() {
  case "$1 $2" in
    "show hostname"*) echo "$SLURM_JOB_NODELIST" | tr , '\n' ;;
    *) echo "fairlead: scontrol $*: has no equivalent here" >&2; return 1 ;;
  esac
}
[ -z "$BASH_VERSION" ] || [ "$(type -t scontrol)" != function ] || export -f scontrol
[ -z "$BASH_VERSION" ] || [ "$(type -t srun)" != function ] || export -f srun
