/** Renders its children for a signed-in user, and the sign-in form for anyone else. */
import { Dialog, DialogSurface } from "@fluentui/react-components";
import { useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useEffect, useRef, useState } from "react";
import { type Person, PersonContext } from "../api/access.ts";
import { api } from "../api/client.ts";
import { onSessionEnded } from "../api/events.ts";
import { ProblemNotice } from "../parts/problem-notice.tsx";
import { ChangePassword } from "./change-password.tsx";
import { EnrollSecondFactor } from "./enroll-second-factor.tsx";
import { SignIn } from "./sign-in.tsx";
import { StepUp } from "./step-up.tsx";
import { useStyles } from "./styles.ts";
import { WaitingFrame } from "./waiting-frame.tsx";

/** Wraps the whole page. Its children keep their state when the session ends and the same user signs in again. */
export function SignedIn({ children }: { children: ReactNode }) {
  const styles = useStyles();
  const queries = useQueryClient();
  const me = api.useQuery(
    "get",
    "/auth/me",
    {},
    {
      staleTime: Number.POSITIVE_INFINITY,
      // During a deployment, a host of the previous version may respond, without a tier (license). Polls until a response has
      // one.
      refetchInterval: ({ state: { data } }) => data !== undefined && data.tier === undefined && TIER_POLL_MS,
    },
  );
  /** The last known user. Kept when the session ends, so that the page stays below the sign-in form. */
  const [person, setPerson] = useState<Person>();
  const [hasEnded, setEnded] = useState(false);
  useEffect(() => onSessionEnded(() => setEnded(true)), []);
  // After the user has signed in again, moves the focus back to the dialog that was open.
  const wasEnded = useRef(false);
  useEffect(() => {
    if (wasEnded.current && !hasEnded)
      document.querySelector<HTMLElement>("[role=dialog] :is(input, select, textarea, button)")?.focus();
    wasEnded.current = hasEnded;
  }, [hasEnded]);

  // The members below are missing for the bearer of an Entra token, who has no password in the service.
  // A user whose password an administrator has set can do nothing but change it.
  const mustChange = me.data && "mustChangePassword" in me.data && me.data.mustChangePassword;
  // A user who must have a second factor can do nothing but add one.
  const mustEnroll = me.data && "mustEnrollSecondFactor" in me.data && me.data.mustEnrollSecondFactor;
  if (me.isSuccess && !mustChange && !mustEnroll && !isSamePerson(me.data, person)) {
    const { username, role, tier } = me.data;
    setPerson({ username, role, tier });
  }
  /** Loads everything again after the first sign-in, when nothing was shown yet. */
  function startSession(): Promise<void> {
    setEnded(false);
    return queries.resetQueries();
  }

  if (me.isPending) return <WaitingFrame />;
  if (mustChange) return <ChangePassword />;
  if (mustEnroll) {
    const { username, role, tier } = me.data;
    return (
      <PersonContext value={{ username, role, tier }}>
        <EnrollSecondFactor finish={() => void startSession()} />
      </PersonContext>
    );
  }
  if (!person) {
    return (
      <main className={styles.signIn}>
        {me.error && me.error.status !== 401 ? (
          <ProblemNotice problem={me.error} retry={() => void me.refetch()} />
        ) : (
          <SignIn signedIn={() => void startSession()} />
        )}
      </main>
    );
  }

  /** Refreshes failed queries. If another user signs in, the page reloads, so that no data of the previous user remains. */
  async function signedIn(username: string) {
    if (username !== person?.username) return location.reload();
    setEnded(false);
    // The role may have changed, or the password may have been reset.
    const needsRefresh = (path: unknown, status: string) => path === "/auth/me" || status === "error";
    await queries.refetchQueries({
      type: "active",
      predicate: ({ queryKey: [, path], state }) => needsRefresh(path, state.status),
    });
  }
  return (
    <PersonContext value={person}>
      {children}
      <StepUp />
      <Dialog modalType="alert" open={hasEnded} surfaceMotion={null}>
        <DialogSurface className={styles.again} aria-label="Sign in again">
          <SignIn hasEnded signedIn={(username) => void signedIn(username)} />
        </DialogSurface>
      </Dialog>
    </PersonContext>
  );
}

/** Interval at which the tier is read again while it is unknown. */
const TIER_POLL_MS = 15_000;

/** Returns whether nothing about the user has changed that the page shows or checks. */
const isSamePerson = (first: Person, second: Person | undefined): boolean =>
  first.username === second?.username && first.role === second.role && first.tier === second.tier;
