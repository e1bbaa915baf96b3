import { type Azurite, startAzurite } from "../../infra/local/azurite.ts";
import { movedClock } from "./moved-clock.ts";

/** Storage whose time a test moves instead of waiting: its `Date`, its rows' Timestamps and its messages' visibility. */
export interface MovedStorage {
  azurite: Azurite;
  /** Moves its time ahead, in milliseconds. */
  move(by: number): Promise<void>;
  stop(): Promise<void>;
}

export async function startMovedStorage(accounts: readonly string[]): Promise<MovedStorage> {
  const clock = movedClock();
  const azurite = await startAzurite({ environment: clock.environment, accounts });
  return {
    azurite,
    move: clock.add,
    async stop() {
      await azurite.stop();
      clock.remove();
    },
  };
}
