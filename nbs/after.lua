-- Run by Quarto when the pages are written: takes out what they load from other hosts without using it.
-- Brings the live figures and their tables along, which nbdev leaves behind.
-- Quarto adds require.js and jQuery to every page with a table made by pandas, and a polyfill for browsers of 2015 to every formula.
-- Quarto marks one entry of the menu on every page, the first that the sidebar knows: here it is the page itself, if any.
local needless = {
  '<script src="https://[^"]*/requirejs@[^>]*></script>\n?', '<script src="https://[^"]*/jquery@[^>]*></script>\n?',
  '<script type="application/javascript">define%(\'jquery\'[^<]*</script>\n?', '%s*<script src="https://[^"]*/polyfill[^>]*></script>',
}
local function mark_this(page, name)
  page = page:gsub('(<a class="nav%-link) active(" href="[^"]*") aria%-current="page"', "%1%2")
  local href = '" href="./' .. name .. '"'
  local plain, marked = '<a class="nav-link' .. href, '<a class="nav-link active' .. href .. ' aria-current="page"'
  local from, to = page:find(plain, 1, true)
  return from and page:sub(1, from - 1) .. marked .. page:sub(to + 1) or page
end

for path in os.getenv("QUARTO_PROJECT_OUTPUT_FILES"):gmatch("[^\r\n]+") do
  if path:match("%.html$") then
    local file = assert(io.open(path, "rb"))
    local page = file:read("a")
    file:close()
    for _, pattern in ipairs(needless) do page = page:gsub(pattern, "") end
    page = mark_this(page, path:match("[^/]+$"))
    file = assert(io.open(path, "wb"))
    file:write(page)
    file:close()
  end
end

local function bring(folder, wanted)
  local from, to = "../nbs/" .. folder .. "/", os.getenv("QUARTO_PROJECT_OUTPUT_DIR") .. "/" .. folder .. "/"
  pandoc.system.make_directory(to, true)
  for _, name in ipairs(pandoc.system.list_directory(from)) do
    if wanted == nil or wanted[name] then
      local source, target = assert(io.open(from .. name, "rb")), assert(io.open(to .. name, "wb"))
      target:write(source:read("a"))
      source:close()
      target:close()
    end
  end
end
bring("live")
bring("data", {["kernel.json"] = true, ["map.json"] = true, ["theorem.json"] = true, ["finite.json"] = true, ["judge.json"] = true})
