#!/bin/sh

#BSUB -J coremargin
#BSUB -q normal
#BSUB -P "research"
#BSUB -n 16
#BSUB -R "span[hosts=1]"
#BSUB -W 02:00
#BSUB -M 32768MB
#BSUB -r
#BSUB -sp 50
export MALLOC_TRIM_THRESHOLD_=1073741824
export MALLOC_MMAP_THRESHOLD_=268435456
export OMP_NUM_THREADS=1
export OPENBLAS_NUM_THREADS=1
export MKL_NUM_THREADS=1
exec python3 -m distributed.cli.dask_worker SCHEDULER --nthreads 8 --memory-limit 16.00GiB --nworkers 2 --nanny --death-timeout 60 --memory-limit 0 --no-dashboard
