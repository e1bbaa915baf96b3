import { Button } from "@fluentui/react-components";
import { type ReactNode, useState } from "react";
import { useCurrentUser } from "../api/access.ts";

/** PRO data that remains readable after the license expired. Without a PRO license it is loaded only on demand, because most
 * installations have none and the API then denies the request.
 */
export function LapsedProData({ children }: { children: ReactNode }) {
  const { tier } = useCurrentUser();
  const [isShown, setShown] = useState(false);
  if (tier === "pro" || isShown) return children;
  return (
    <div>
      <Button size="small" onClick={() => setShown(true)}>
        Show data from an expired license
      </Button>
    </div>
  );
}
