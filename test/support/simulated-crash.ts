/** The simulated crash of a process: after the selected step, nothing that the process does has an effect. */
export class SimulatedCrash extends Error {
  override readonly name = "SimulatedCrash";
}

/** Counts the steps with an external effect, and crashes the process before or after one of them. */
export interface Steps {
  taken: number;
  crashAt?: number;
  when?: "before" | "after";
  dead?: boolean;
}

/** Wraps a dependency of a module. Each call of a method that is `counted` and returns a promise is a step. */
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
        const result = () => member.apply(target, args) as unknown;
        if (!counted(name)) return result();
        steps.taken++;
        const dies = steps.taken === steps.crashAt;
        if (dies) steps.dead = true;
        if (dies && steps.when === "before") throw new SimulatedCrash(name);
        const answer = result();
        if (!dies) return answer;
        return Promise.resolve(answer).then(
          () => Promise.reject(new SimulatedCrash(name)),
          () => Promise.reject(new SimulatedCrash(name)),
        );
      };
    },
  });
}
