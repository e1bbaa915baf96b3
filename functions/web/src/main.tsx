import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./app.tsx";
import "./page.css";
import { restoreView } from "./shell/restored-view.ts";

restoreView();
createRoot(document.getElementById("page")!).render(
  <StrictMode>
    <App />
  </StrictMode>,
);
