/**
 * Simulates the crash of a process within a test's own process. The dependencies of a module are wrapped with `crashable`. From
 * the selected step on, their methods throw this error, so that nothing that the module does afterwards has an effect.
 */
export class SimulatedCrash extends Error {
  override readonly name = "SimulatedCrash";
}

/** State that all wrapped dependencies of one simulated process share. A step is a call with an external effect. */
export interface Steps {
  /** Number of steps so far. */
  taken: number;
  /** Number of the step that crashes the process, counted from 1. Without it, the steps are only counted. */
  crashAt?: number;
  /** Whether the process crashes before the step has its effect, or after. The default is after. */
  when?: "before" | "after";
  /** True from the crash on. */
  dead?: boolean;
}

/**
 * Wraps a dependency of a module.
 *
 * @param counted - Returns whether the calls of a method are steps. The methods for which it returns true must return promises.
 */
export function crashable<T extends object>(
  inner: T,
  steps: Steps,
  counted: (method: string) => boolean = () => true,
): T {
  return new Proxy(inner, {
    get(target, name, receiver) {
      const member: unknown = Reflect.get(target, name, receiver);
      if (typeof member !== "function" || typeof name !== "string") return member;
      return (...args: unknown[]) => {
        if (steps.dead) throw new SimulatedCrash(name);
        const callMethod = () => member.apply(target, args) as unknown;
        if (!counted(name)) return callMethod();
        steps.taken++;
        const isCrash = steps.taken === steps.crashAt;
        if (isCrash) steps.dead = true;
        if (isCrash && steps.when === "before") throw new SimulatedCrash(name);
        const promise = callMethod();
        if (!isCrash) return promise;
        // The effect takes place, and the caller does not learn its result.
        return Promise.resolve(promise).then(
          () => Promise.reject(new SimulatedCrash(name)),
          () => Promise.reject(new SimulatedCrash(name)),
        );
      };
    },
  });
}
