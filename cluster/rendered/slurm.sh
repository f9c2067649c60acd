#!/bin/sh
#SBATCH --job-name=coremargin
#SBATCH --array=1-4
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=16
#SBATCH --mem=32768M
#SBATCH --time=02:00:00
#SBATCH --requeue
#SBATCH --partition=main
#SBATCH --account=research
#SBATCH --output=/shared/logs/%x-%A-%a.out
#SBATCH --exclusive=user

export MALLOC_TRIM_THRESHOLD_=1073741824
export MALLOC_MMAP_THRESHOLD_=268435456
export OMP_NUM_THREADS=1
export OPENBLAS_NUM_THREADS=1
export MKL_NUM_THREADS=1
module load python/3.11
exec python3 -m distributed.cli.dask_worker SCHEDULER --nworkers 2 --nthreads 8 --memory-limit 0 --no-dashboard --death-timeout 60
