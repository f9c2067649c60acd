#!/bin/sh
#$ -N coremargin
#$ -t 1-4
#$ -pe smp 16
#$ -l h_vmem=2048M
#$ -l h_rt=02:00:00
#$ -S /bin/sh
#$ -cwd
#$ -r y
#$ -j y
#$ -q all.q

export MALLOC_TRIM_THRESHOLD_=1073741824
export MALLOC_MMAP_THRESHOLD_=268435456
export OMP_NUM_THREADS=1
export OPENBLAS_NUM_THREADS=1
export MKL_NUM_THREADS=1
exec python3 -m distributed.cli.dask_worker SCHEDULER --nworkers 2 --nthreads 8 --memory-limit 0 --no-dashboard --death-timeout 60
