"""temp"""
import asyncio, sys, os
def main():
    from holdfast.settings import Settings
    from holdfast.workers import logs
    logs.configure()
    s=Settings()
    async def worker():
        from holdfast.plugin import HoldfastPlugin
        from holdfast.workers.connecting import connect
        from holdfast.workers.worker import run_worker
        c=await connect(s, HoldfastPlugin(s), embedded=True)
        await run_worker(c, s, say=lambda t: print(t, flush=True))
    async def up():
        from holdfast.workers.up import run_up
        await run_up(s, say=lambda t: print(t, flush=True))
    asyncio.run(worker() if sys.argv[1]=="worker" else up())
    os._exit(0)
if __name__=="__main__": main()
