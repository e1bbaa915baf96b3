import { Button, Spinner, Title3 } from "@fluentui/react-components";
import { NavigationRegular } from "@fluentui/react-icons";
import { useEffect, useState } from "react";
import { requirementsOf } from "../api/access.ts";
import { onWaiting } from "../api/events.ts";
import { useLocation } from "../parts/router.tsx";
import { useIsNarrow } from "../parts/width.ts";
import { subviewOf, titleOf } from "../views/views.ts";
import { Breadcrumbs } from "./breadcrumbs.tsx";
import { NavigationOf } from "./navigation.tsx";
import { PRODUCT } from "./product.ts";
import { RateLimitNotice } from "./rate-limit-notice.tsx";
import { useStyles } from "./styles.ts";

/**
 * The page while it loads the signed-in user. If that request waits at the rate limit, the frame of the page is shown at once, with
 * the title of the view. The role is unknown until then, so the navigation has the views that every role can open.
 */
export function WaitingFrame() {
  const styles = useStyles();
  const isNarrow = useIsNarrow();
  const { pathname } = useLocation();
  const [isWaiting, setWaiting] = useState(false);
  const [isOpen, setOpen] = useState(false);
  useEffect(() => onWaiting(() => setWaiting(true)), []);
  return (
    <div className={isWaiting ? styles.page : styles.signIn}>
      {isWaiting && (
        <header className={styles.header}>
          {isNarrow && (
            <Button appearance="subtle" icon={<NavigationRegular />} aria-label="Views" onClick={() => setOpen(true)} />
          )}
          <span className={styles.product}>{PRODUCT}</span>
        </header>
      )}
      {/* At the same place before and during the wait, so that it keeps the time of the wait. */}
      <RateLimitNotice />
      {isWaiting ? (
        <div className={styles.body}>
          <NavigationOf
            isNarrow={isNarrow}
            isOpen={isOpen || !isNarrow}
            close={() => setOpen(false)}
            isAllowed={(operation) => requirementsOf(operation).roles.includes("user")}
            attention={{}}
          />
          <main className={styles.main}>
            <Breadcrumbs pathname={pathname} />
            <Title3 as="h1">{subviewOf(pathname)?.kind ?? titleOf(pathname) ?? PRODUCT}</Title3>
            <Spinner label="Loading" />
          </main>
        </div>
      ) : (
        <Spinner label="Loading" />
      )}
    </div>
  );
}
