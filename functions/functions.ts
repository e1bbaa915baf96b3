/** Everything the platform calls, in one list. */
import type { Endpoint } from "../shared/http/endpoint.ts";
import * as alerts from "./alerts.ts";
import * as apiTokens from "./api-tokens.ts";
import * as applications from "./applications.ts";
import * as audit from "./audit.ts";
import * as auth from "./auth.ts";
import * as b2c from "./b2c.ts";
import { catchAll } from "./catch-all.ts";
import * as compliance from "./compliance.ts";
import * as dependencies from "./dependencies.ts";
import * as dependencyRotation from "./dependency-rotation.ts";
import * as devops from "./devops.ts";
import * as discovery from "./discovery.ts";
import { documentation } from "./docs.ts";
import type { QueueDeclaration, TimerDeclaration } from "./kit.ts";
import * as license from "./license.ts";
import * as maintenance from "./maintenance.ts";
import * as metrics from "./metrics.ts";
import * as page from "./page.ts";
import * as reconciliation from "./reconciliation.ts";
import * as rotationMatches from "./rotation-matches.ts";
import * as rotations from "./rotations.ts";
import type { Services } from "./services.ts";
import * as settings from "./settings.ts";
import * as sso from "./sso.ts";
import * as subscriptions from "./subscriptions.ts";
import * as sync from "./sync.ts";
import * as system from "./system.ts";
import * as users from "./users.ts";

export const endpoints: Endpoint<Services>[] = [
  ...system.endpoints,
  ...metrics.endpoints,
  ...license.endpoints,
  ...auth.endpoints,
  ...apiTokens.endpoints,
  ...users.endpoints,
  ...sso.endpoints,
  ...discovery.endpoints,
  ...subscriptions.endpoints,
  ...applications.endpoints,
  ...settings.endpoints,
  ...devops.endpoints,
  ...compliance.endpoints,
  ...sync.endpoints,
  ...b2c.endpoints,
  ...alerts.endpoints,
  ...audit.endpoints,
  ...reconciliation.endpoints,
  ...rotationMatches.endpoints,
  ...rotations.endpoints,
  ...dependencyRotation.endpoints,
  ...dependencies.endpoints,
  ...page.endpoints,
  ...documentation(() => endpoints),
  catchAll(() => endpoints),
];
export const timers: TimerDeclaration[] = [
  ...discovery.timers,
  ...subscriptions.timers,
  ...applications.timers,
  ...settings.timers,
  ...compliance.timers,
  ...sync.timers,
  ...b2c.timers,
  ...alerts.timers,
  ...audit.timers,
  ...reconciliation.timers,
  ...rotationMatches.timers,
  ...rotations.timers,
  ...dependencies.timers,
  ...maintenance.timers,
];
export const queues: QueueDeclaration[] = [
  ...discovery.queues,
  ...applications.queues,
  ...compliance.queues,
  ...sync.queues,
  ...b2c.queues,
  ...alerts.queues,
  ...reconciliation.queues,
  ...rotationMatches.queues,
  ...rotations.queues,
  ...dependencies.queues,
];
