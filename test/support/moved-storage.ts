import { type Azurite, startAzurite } from "../../infra/local/azurite.ts";
import { movedClock } from "./moved-clock.ts";

/**
 * An Azurite whose clock a test moves ahead. The clock determines the `Date` header, the Timestamps of rows, and the visibility
 * of messages.
 */
export interface MovedStorage {
  azurite: Azurite;
  move(milliseconds: number): Promise<void>;
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
