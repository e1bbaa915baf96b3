/** Shows what it holds to who is signed in, and to anybody else the sign-in. */
import { Dialog, DialogSurface, Spinner } from "@fluentui/react-components";
import { useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useEffect, useRef, useState } from "react";
import { type Person, PersonContext } from "../api/access.ts";
import { api } from "../api/client.ts";
import { onSessionEnded } from "../api/events.ts";
import { ProblemNotice } from "../parts/problem-notice.tsx";
import { ChangePassword } from "./change-password.tsx";
import { SignIn } from "./sign-in.tsx";
import { useStyles } from "./styles.ts";
import { Waiting } from "./waiting.tsx";

export function SignedIn({ children }: { children: ReactNode }) {
  const styles = useStyles();
  const queries = useQueryClient();
  const me = api.useQuery(
    "get",
    "/auth/me",
    {},
    {
      staleTime: Number.POSITIVE_INFINITY,
      // While a new version is brought out, a host of the one before may answer, which says no tier: asked until one does.
      refetchInterval: ({ state: { data } }) => data !== undefined && data.tier === undefined && TIER_UNKNOWN_MS,
    },
  );
  const [person, setPerson] = useState<Person>();
  const [hasEnded, setEnded] = useState(false);
  useEffect(() => onSessionEnded(() => setEnded(true)), []);
  // Who was in a form goes on there: the sign-in has taken the focus from it.
  const wasEnded = useRef(false);
  useEffect(() => {
    if (wasEnded.current && !hasEnded)
      document.querySelector<HTMLElement>("[role=dialog] :is(input, select, textarea, button)")?.focus();
    wasEnded.current = hasEnded;
  }, [hasEnded]);

  const mustChange = me.data && "mustChangePassword" in me.data && me.data.mustChangePassword;
  if (me.isSuccess && !mustChange && !isSame(me.data, person)) {
    const { username, role, tier } = me.data;
    setPerson({ username, role, tier });
  }
  function begin(): Promise<void> {
    setEnded(false);
    return queries.resetQueries();
  }

  if (me.isPending) {
    return (
      <div className={styles.signIn}>
        <Waiting />
        <Spinner label="Loading" />
      </div>
    );
  }
  if (mustChange) return <ChangePassword />;
  if (!person) {
    return (
      <main className={styles.signIn}>
        {me.error && me.error.status !== 401 ? (
          <ProblemNotice problem={me.error} retry={() => void me.refetch()} />
        ) : (
          <SignIn signedIn={() => void begin()} />
        )}
      </main>
    );
  }

  /** What failed meanwhile is read again. Another person sees nothing of what the one before was answered or typed. */
  async function signedIn(username: string) {
    if (username !== person?.username) return location.reload();
    setEnded(false);
    // The role may be another one by now, and a password that was reset must be changed first.
    const isAsked = (path: unknown, status: string) => path === "/auth/me" || status === "error";
    await queries.refetchQueries({
      type: "active",
      predicate: ({ queryKey: [, path], state }) => isAsked(path, state.status),
    });
  }
  return (
    <PersonContext value={person}>
      {children}
      <Dialog modalType="alert" open={hasEnded} surfaceMotion={null}>
        <DialogSurface className={styles.again} aria-label="Sign in again">
          <SignIn hasEnded signedIn={(username) => void signedIn(username)} />
        </DialogSurface>
      </Dialog>
    </PersonContext>
  );
}

const TIER_UNKNOWN_MS = 15_000;

const isSame = (one: Person, other: Person | undefined): boolean =>
  one.username === other?.username && one.role === other.role && one.tier === other.tier;
