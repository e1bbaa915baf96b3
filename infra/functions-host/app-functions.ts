// Lists the functions that an app has registered, without the ones that this host cannot run. `startHost` calls it once, after
// the app is loaded.

import type { Core } from "./functions-core.ts";
import type { Log } from "./log.ts";
import type { BindingInfo, RetryOptions } from "./worker-protocol.ts";

export interface AppFunction {
  name: string;
  trigger: BindingInfo & { name: string };
  /** A disabled function keeps its route, which returns 404. Its timer or queue is ignored. */
  disabled: boolean;
  retry: RetryOptions | undefined;
}

/** Valid function names, as in the Functions host (`Utility.cs`, FunctionNameValidationRegex). */
const FUNCTION_NAME = /^[A-Za-z][A-Za-z0-9_-]{0,127}$/;
const SUPPORTED_TRIGGERS = ["httptrigger", "timertrigger", "queuetrigger"];

/** Returns the app's functions. Functions that can't run are omitted and logged as errors, as on the platform. */
export function indexFunctions(core: Core, log: Log): AppFunction[] {
  const functions: AppFunction[] = [];
  for (const { metadata } of core.functions.values()) {
    const { name, bindings, retryOptions } = metadata;
    const reject = (reason: string) => log("error", "Host.Startup", `The '${name}' function is in error: ${reason}`);
    const [bindingName, trigger] = Object.entries(bindings).find(([, { type }]) => /trigger$/i.test(type)) ?? [];
    if (!FUNCTION_NAME.test(name)) reject(`'${name}' is not a valid function name`);
    else if (bindingName === undefined || trigger === undefined) reject("it has no trigger");
    else if (!SUPPORTED_TRIGGERS.includes(trigger.type.toLowerCase())) {
      reject(`the local host runs HTTP, timer and queue triggers, not '${trigger.type}'`);
    } else {
      if (retryOptions != null && !isTrigger(trigger, "timer")) {
        log("warning", "Host.Startup", `'${name}': the platform does not support a retry policy on '${trigger.type}'`);
      }
      const { name: _, ...settings } = trigger as BindingInfo & { name?: string };
      functions.push({
        name,
        trigger: { ...(settings as BindingInfo), name: bindingName },
        disabled: isDisabled(name),
        retry: retryOptions ?? undefined,
      });
    }
  }
  return functions;
}

/** Returns whether the trigger is of this kind. Trigger types ignore case: `httpTrigger` and `HttpTrigger` are the same. */
export function isTrigger(trigger: BindingInfo, kind: "http" | "timer" | "queue"): boolean {
  return trigger.type.toLowerCase() === `${kind}trigger`;
}

/**
 * Returns whether an app setting disables the function: `AzureWebJobs.<name>.Disabled`, or with `_` instead of `.` where the
 * operating system does not allow `.`:
 * https://learn.microsoft.com/azure/azure-functions/disable-function
 */
function isDisabled(name: string): boolean {
  const value = process.env[`AzureWebJobs.${name}.Disabled`] ?? process.env[`AzureWebJobs_${name}_Disabled`];
  return /^(true|1)$/i.test(value ?? "");
}
